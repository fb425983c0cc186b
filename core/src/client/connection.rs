//! Connections in the hands of the application.

use super::{Client, CommandError, Error, Net, Platform};
use crate::Instant;
use crate::selection::ReadPreference;
use crate::shell::{self, Guard, OperationError};
use crate::wire::bson::{DocumentWriter, RawDocument};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::ops::AsyncFnOnce;
use core::time::Duration;

impl<P: Platform> Client<P> {
    /// Checks out a connection to a server that accepts writes. Dropping the connection returns it.
    ///
    /// The time of [`ClientOptions::timeout`](super::ClientOptions::timeout) begins now, for this and for everything done with the connection.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server, or no connection in time.
    pub async fn check_out(&self) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(None, self.own_deadline()).await
    }

    /// [`Client::check_out`] with a time limit of its own; `None` is for ever, zero is at once or never.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_by(&self, timeout: Option<Duration>) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(None, self.deadline(timeout)).await
    }

    /// [`Client::check_out`] of a connection to a server of the user's choice.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_preferring(&self, read_preference: ReadPreference<'_>) -> Result<Connection<'_, P>, Error> {
        self.check_out_until(Some(read_preference), self.own_deadline()).await
    }

    async fn check_out_until(
        &self,
        read_preference: Option<ReadPreference<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Connection<'_, P>, Error> {
        let guard = self.inner.hub.check_out(&self.wanted(read_preference, &[]), deadline).await?;
        Ok(Connection::new(guard, self.pacing(deadline)))
    }

    /// Runs `work` with a connection of its own, which goes back to the pool whatever happens.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`]; what `work` returns is passed on.
    pub async fn with_connection<T>(&self, work: impl AsyncFnOnce(&mut Connection<'_, P>) -> T) -> Result<T, Error> {
        let mut connection = self.check_out().await?;
        Ok(work(&mut connection).await)
    }
}

/// A connection that is checked out. Dropping it returns it to its pool. One that is dropped after an error is closed; one that is dropped
/// while a reply is outstanding, or after its time was over, is kept if the reply comes soon: see
/// [`ClientOptions::late_reply`](super::ClientOptions::late_reply).
pub struct Connection<'c, P: Platform> {
    guard: Guard<'c, Net<P>>,
    /// Whose `socketTimeoutMS` limits each command, if any does.
    pacing: Option<&'c Client<P>>,
}

impl<'c, P: Platform> Connection<'c, P> {
    pub(super) const fn new(guard: Guard<'c, Net<P>>, pacing: Option<&'c Client<P>>) -> Self {
        Self { guard, pacing }
    }

    /// Runs a command on this connection.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]. After an [`Error::Operation`] the connection is of no further use, unless nothing had been sent: see
    /// [`Guard::run_command`]. After an [`Error::Command`] it is as good as before.
    pub async fn run_command(&mut self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        let bytes = command.to_vec().map_err(|error| Error::Bson(error.to_string()))?;
        self.run(database, &bytes, None, to_document).await
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
        self.run(database, command.as_bytes(), None, to_raw_document).await
    }

    pub(super) async fn run<T>(
        &mut self,
        database: &str,
        command: &[u8],
        read_preference: Option<&ReadPreference<'_>>,
        read: fn(RawDocument<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let command = RawDocument::new(command).map_err(|error| Error::Bson(error.to_string()))?;
        if command.is_empty() {
            return Err(Error::Bson("a command must not be empty".into()));
        }
        if let Some(client) = self.pacing {
            self.guard.set_deadline(client.deadline(client.options().socket_timeout));
        }
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.extend(command)?;
            read_preference.map_or(Ok(()), |preference| shell::append_read_preference(body, preference))
        };
        match self.guard.run_command(database, write).await {
            Ok(reply) => read(reply),
            Err(OperationError::Command { code, .. }) => Err(self.refusal(code)),
            Err(error) => Err(Error::Operation(error)),
        }
    }

    /// The guard beneath, which writes commands and reads replies without the bson crate's documents.
    pub const fn raw(&mut self) -> &mut Guard<'c, Net<P>> {
        &mut self.guard
    }

    /// The specification's id of the connection: its number in the pool.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.guard.connection_id()
    }

    fn refusal(&self, code: i32) -> Error {
        let reply = self.guard.reply().and_then(|reply| bson::Document::try_from(reply).ok()).unwrap_or_default();
        let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
        Error::Command(Box::new(CommandError {
            code,
            code_name: reply.get_str("codeName").ok().map(str::to_owned),
            message: reply.get_str("errmsg").ok().map(str::to_owned),
            labels: labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect(),
            reply,
        }))
    }
}

impl<P: Platform> fmt::Debug for Connection<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("guard", &self.guard).finish()
    }
}

pub(super) fn to_document(reply: RawDocument<'_>) -> Result<bson::Document, Error> {
    reply.try_into().map_err(|error: bson::error::Error| Error::Bson(error.to_string()))
}

pub(super) fn to_raw_document(reply: RawDocument<'_>) -> Result<bson::RawDocumentBuf, Error> {
    bson::RawDocumentBuf::from_bytes(reply.as_bytes().to_vec()).map_err(|error| Error::Bson(error.to_string()))
}
