//! Connections in the hands of the application.

use super::options::tag_sets;
use super::{Client, CommandError, Error, Net, OwnedReadPreference, Platform};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::ops::AsyncFnOnce;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_core::topology::StateChange;
use poolhouse_driver as shell;
use poolhouse_driver::{Guard, OperationError};
use poolhouse_wire::bson::{DocumentWriter, RawDocument};

impl<P: Platform> Client<P> {
    /// Checks out a connection to a server that accepts writes. Dropping the connection returns it.
    ///
    /// The time of [`ClientOptions::timeout`](super::ClientOptions::timeout) begins now, for this and for everything done with the connection.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server, or no connection in time.
    pub async fn check_out(&self) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(None, self.own_deadline(), true).await
    }

    /// [`Client::check_out`] with a time limit of its own; `None` is no limit, zero is at once or not at all. `socketTimeoutMS`
    /// does not apply.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_by(&self, timeout: impl Into<Option<Duration>>) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(None, self.deadline(timeout.into()), false).await
    }

    /// [`Client::check_out`] of a connection to a server of the user's choice. The server is told of the read preference with each
    /// command, where it must be: without that, a member that is no primary does not answer.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_preferring(&self, read_preference: ReadPreference<'_>) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(Some(read_preference), self.own_deadline(), true).await
    }

    /// `may_pace`: whether `socketTimeoutMS` applies if there is no deadline.
    async fn check_out_until(
        &self,
        read_preference: Option<ReadPreference<'_>>,
        deadline: Option<Instant>,
        may_pace: bool,
    ) -> Result<Connection<'_, P>, Error> {
        let guard = self.inner.hub.check_out(&self.wanted(read_preference), deadline).await?;
        // Of a primary nobody is told.
        let kept = read_preference.filter(|preference| preference.options().mode != ReadMode::Primary);
        let read_preference = kept.map(|preference| Box::new(OwnedReadPreference::from(preference)));
        Ok(Connection { guard, client: self, is_paced: may_pace && self.is_paced(deadline), read_preference })
    }

    /// Runs `work` with a connection of its own, which goes back to the pool whatever happens.
    ///
    /// # Errors
    ///
    /// Those of [`Client::check_out`], and those of `work`.
    pub async fn with_connection<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection<'_, P>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.check_out().await?;
        work(&mut connection).await
    }
}

/// A connection that is checked out. Dropping it returns it to its pool. One that is dropped after an error is closed; one that is dropped
/// while a reply is outstanding, or after its time was over, is kept if the reply comes soon: see
/// [`ClientOptions::late_reply`](super::ClientOptions::late_reply).
pub struct Connection<'c, P: Platform> {
    guard: Guard<'c, Net<P>>,
    client: &'c Client<P>,
    /// Whether `socketTimeoutMS` limits each command.
    is_paced: bool,
    /// What it was checked out by, unless that is what servers do without. Apart, as most have none, and the connection moves.
    read_preference: Option<Box<OwnedReadPreference>>,
}

impl<'c, P: Platform> Connection<'c, P> {
    /// Runs a command on this connection.
    ///
    /// As by [`Client::run_command`], `$db` is added; and the read preference that the connection was
    /// [checked out](Client::check_out_preferring) by, where the server must be told of one.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]. After an [`Error::Operation`] the connection is of no further use, unless nothing had been sent: see
    /// [`Guard::run_command`]. After an [`Error::Command`] it is as good as before.
    pub async fn run_command(&mut self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        let bytes = command.to_vec().map_err(|error| Error::Bson(error.to_string()))?;
        self.run(database, &bytes, to_document).await
    }

    /// [`Connection::run_command`] without taking documents apart.
    ///
    /// # Errors
    ///
    /// As [`Connection::run_command`].
    pub async fn run_raw_command(
        &mut self,
        database: &str,
        command: &bson::RawDocument,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.run(database, command.as_bytes(), to_raw_document).await
    }

    async fn run<T>(
        &mut self,
        database: &str,
        command: &[u8],
        read: fn(RawDocument<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let command = checked(command)?;
        let pairs = self.read_preference.as_deref().map(OwnedReadPreference::pairs).unwrap_or_default();
        let tag_sets = tag_sets(&pairs);
        let wanted = self.read_preference.as_ref().map(|wanted| wanted.borrowed(&tag_sets).validate()).transpose()?;
        let told = self.guard.told_preference(wanted, self.client.options().direct_connection);
        if self.is_paced {
            self.client.pace(&mut self.guard);
        }
        exchange(&mut self.guard, database, command, told.as_ref(), read).await
    }

    /// The guard beneath, which writes commands and reads replies without the bson crate's documents. It tells the server of no read
    /// preference: [`append_read_preference`](poolhouse_driver::append_read_preference) does.
    pub const fn raw(&mut self) -> &mut Guard<'c, Net<P>> {
        &mut self.guard
    }

    /// The specification's id of the connection: its number in the pool.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.guard.connection_id()
    }
}

impl<P: Platform> fmt::Debug for Connection<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("guard", &self.guard).finish()
    }
}

/// The command that these bytes are, if they can be one.
pub(super) fn checked(command: &[u8]) -> Result<RawDocument<'_>, Error> {
    let command = RawDocument::new(command).map_err(|error| Error::Bson(error.to_string()))?;
    if command.is_empty() {
        return Err(Error::Bson("a command must not be empty".into()));
    }
    Ok(command)
}

/// Sends a command and reads the reply.
///
/// - `command`: [`checked`]. `told`: the read preference that the server is told.
pub(super) async fn exchange<P: Platform, T>(
    guard: &mut Guard<'_, Net<P>>,
    database: &str,
    command: RawDocument<'_>,
    told: Option<&ReadPreference<'_>>,
    read: fn(RawDocument<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
        body.extend(command)?;
        told.map_or(Ok(()), |preference| shell::append_read_preference(body, preference))
    };
    match guard.run_command(database, write).await {
        Ok(reply) => read(reply),
        Err(OperationError::Command { code, .. }) => Err(refusal(guard, code)),
        Err(error) => Err(Error::Operation(error)),
    }
}

fn refusal<P: Platform>(guard: &Guard<'_, Net<P>>, code: i32) -> Error {
    let reply = guard.reply().and_then(|reply| bson::Document::try_from(reply).ok()).unwrap_or_default();
    let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    Error::Command(Box::new(CommandError {
        code,
        code_name: reply.get_str("codeName").ok().map(str::to_owned),
        message: reply.get_str("errmsg").ok().map(str::to_owned),
        labels: labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect(),
        reply,
        hint: (guard.is_direct() && StateChange::of_code(code) == Some(StateChange::NotWritablePrimary))
            .then_some(DIRECT),
    }))
}

const DIRECT: &str =
    "directConnection=true reached a member that is not the primary; without it, the client finds the primary";

pub(super) fn to_document(reply: RawDocument<'_>) -> Result<bson::Document, Error> {
    reply.try_into().map_err(|error: bson::error::Error| Error::Bson(error.to_string()))
}

pub(super) fn to_raw_document(reply: RawDocument<'_>) -> Result<bson::RawDocumentBuf, Error> {
    bson::RawDocumentBuf::from_bytes(reply.as_bytes().to_vec()).map_err(|error| Error::Bson(error.to_string()))
}
