//! Connections checked out by the application.

use super::convert::{Read, checked, into_encoded, to_document, to_document_lossy, to_raw_document, to_value};
use super::error::{hint, labels};
use super::options::tag_sets;
use super::session::{Additions, MaxTime, SessionState};
use super::{Client, CommandError, Error, Net, OwnedReadPreference, Platform, WriteError};
use crate::command::{end, name_of};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::ops::AsyncFnOnce;
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_core::topology::StateChange;
use poolhouse_driver::{Guard, OperationError};
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::command::CommandShape;
use serde::de::DeserializeOwned;

/// The time limit of a check-out and of the commands on its connection.
enum TimeLimit {
    /// `timeoutMS` for all of them; without it, `socketTimeoutMS` for each command.
    OfClient,
    /// That of the call, for all of them; `None` is no limit.
    OfCall(Option<Duration>),
}

impl<P: Platform> Client<P> {
    /// Checks out a connection to a server that accepts writes. Dropping the connection returns it.
    ///
    /// The deadline of [`ClientOptions::timeout`](super::ClientOptions::timeout) starts now and
    /// covers the check-out and every use of the connection.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server could be selected, or no connection was available in time.
    pub fn check_out(&self) -> impl Future<Output = Result<Connection<'_, P>, Error>> {
        self.check_out_within(None, TimeLimit::OfClient)
    }

    /// Checks out a connection as [`Client::check_out`] does, with another time limit. `None` sets
    /// no deadline: `serverSelectionTimeoutMS` and `waitQueueTimeoutMS` apply. With zero, the call
    /// fails unless a connection is available at once. `socketTimeoutMS` does not apply.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub fn check_out_timeout(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> impl Future<Output = Result<Connection<'_, P>, Error>> {
        self.check_out_within(None, TimeLimit::OfCall(timeout.into()))
    }

    /// Checks out a connection as [`Client::check_out`] does, to a server that matches a read
    /// preference. Each command carries the read preference where the server requires it: a member
    /// that is not the primary refuses commands without one.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_preferring(&self, read_preference: ReadPreference<'_>) -> Result<Connection<'_, P>, Error> {
        self.check_out_within(Some(read_preference), TimeLimit::OfClient).await
    }

    async fn check_out_within(
        &self,
        read_preference: Option<ReadPreference<'_>>,
        limit: TimeLimit,
    ) -> Result<Connection<'_, P>, Error> {
        let deadline = match limit {
            TimeLimit::OfClient => self.deadline(self.options().timeout),
            TimeLimit::OfCall(timeout) => self.deadline(timeout),
        };
        let is_paced = matches!(limit, TimeLimit::OfClient) && self.is_paced(deadline);
        let guard = self.inner.core.check_out(&self.selection_request(read_preference), deadline).await?;
        // Servers use the mode `primary` by default, so it is not sent.
        let kept = read_preference.filter(|preference| preference.options().mode != ReadMode::Primary);
        let read_preference = kept.map(|preference| Box::new(OwnedReadPreference::from(preference)));
        Ok(Connection { guard, client: self, is_paced, read_preference, session: None })
    }

    /// Checks out a connection, runs `work` with it, and checks it in, whatever `work` returns.
    /// After an error of the connection, it is closed.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::check_out`], and those of `work`, which may fail with its own error
    /// type that has `From<Error>`.
    pub async fn with_connection<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection<'_, P>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.check_out().await?;
        work(&mut connection).await
    }
}

/// A checked-out connection. Dropping it returns it to its pool. If it is dropped after an error, or
/// because its owner panics, it is closed. If it is dropped while a reply is outstanding, or after its deadline, it is closed
/// unless the reply arrives within the drain timeout: see
/// [`ClientOptions::drain_timeout`](super::ClientOptions::drain_timeout).
pub struct Connection<'c, P: Platform> {
    guard: Guard<'c, Net<P>>,
    client: &'c Client<P>,
    /// Whether `socketTimeoutMS` limits each command.
    is_paced: bool,
    /// The read preference of the check-out; `None` for `primary`, the servers' default. Boxed
    /// because most connections have none, and a smaller `Connection` is cheaper to move.
    read_preference: Option<Box<OwnedReadPreference>>,
    /// The session of all commands on this connection, so that a cursor stays in its session.
    session: Option<Box<SessionState<P>>>,
}

impl<'c, P: Platform> Connection<'c, P> {
    /// Runs a command on this connection.
    ///
    /// `$db`, `lsid` and `$clusterTime` are added, as in [`Client::run_command`]; all commands on
    /// this connection run in the same session. The command is not retried. The read preference
    /// that the connection was [checked out](Client::check_out_preferring) with is added where the
    /// server requires it. A write with `w: 0` has no session and no reply: the connection is usable
    /// when it is sent.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]. After an [`Error::Operation`], the connection cannot be used any
    /// more, unless the command was not sent: see [`Guard::run_command`]. After an
    /// [`Error::Command`] or an [`Error::Write`], it stays usable.
    pub async fn run_command(&mut self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        self.run(database, &into_encoded(command)?, to_document).await
    }

    /// Runs a command as [`Connection::run_command`] does, and decodes the reply with serde: see
    /// [`Client::run_command_as`].
    ///
    /// # Errors
    ///
    /// As [`Connection::run_command`]; [`Error::Bson`] if the reply is no `T`.
    pub async fn run_command_as<T: DeserializeOwned + Send>(
        &mut self,
        database: &str,
        command: bson::Document,
    ) -> Result<T, Error> {
        self.run(database, &into_encoded(command)?, to_value).await
    }

    /// Runs a command as [`Connection::run_command`] does, without decoding documents.
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

    async fn run<T>(&mut self, database: &str, command: &[u8], read: Read<T>) -> Result<T, Error> {
        let timer = self.client.timer(|| name_of(command));
        let result = match self.client.operation_span(None, database, command) {
            None => self.run_within(database, command, read).await,
            Some(span) => Box::pin(span.run(self.run_within(database, command, read))).await,
        };
        end(timer, &result);
        result
    }

    async fn run_within<T>(&mut self, database: &str, command: &[u8], read: Read<T>) -> Result<T, Error> {
        let command = checked(command)?;
        let pairs = self.read_preference.as_deref().map(OwnedReadPreference::pairs).unwrap_or_default();
        let tag_sets = tag_sets(&pairs);
        let wanted = self.read_preference.as_ref().map(|wanted| wanted.borrowed(&tag_sets).validate()).transpose()?;
        let sent = self.guard.preference_to_send(wanted, self.client.options().direct_connection);
        self.guard.set_operation_id(self.client.operation_id());
        if self.is_paced {
            self.client.pace(&mut self.guard);
        }
        let session = self.session.get_or_insert_default();
        let max_time = MaxTime::rest_if(!self.is_paced);
        run_once(&mut self.guard, self.client, session, database, command, sent.as_ref(), max_time).await?;
        converted(&self.guard, read)
    }

    /// Returns the driver's guard of the connection, which writes commands and reads replies
    /// without the bson crate's documents. It adds no read preference to a command: use
    /// [`append_read_preference`](poolhouse_driver::append_read_preference).
    pub const fn raw(&mut self) -> &mut Guard<'c, Net<P>> {
        &mut self.guard
    }

    /// Returns the connection id of the CMAP specification: the connection's number in its pool.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.guard.connection_id()
    }
}

impl<P: Platform> Drop for Connection<'_, P> {
    fn drop(&mut self) {
        if let Some(session) = &mut self.session {
            session.end(self.client);
        }
    }
}

impl<P: Platform> fmt::Debug for Connection<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("guard", &self.guard).finish()
    }
}

/// The parts of a command to send.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) database: &'a str,
    /// The result of [`checked`].
    pub(super) command: RawDocument<'a>,
    /// The read preference to add to the command.
    pub(super) preference: Option<&'a ReadPreference<'a>>,
    pub(super) additions: Additions,
    /// [`CommandShape::has_reply`].
    pub(super) has_reply: bool,
}

/// The codes of a server that refuses `$clusterTime`, and so did not execute the command.
///
/// Source: the server's list of error codes.
const CLUSTER_TIME_REFUSED: [i32; 5] = [
    204, // TimeProofMismatch: the signature is wrong.
    205, // ClusterTimeFailsRateLimiter: the time is too far in the future.
    209, // StaleClusterTime
    210, // CannotVerifyAndSignLogicalTime: the server has no keys, for example after a restart.
    211, // KeyNotFound: the key is not known yet, or was lost with the primary that had created it.
];

/// Sends a command and waits for its reply, if it has one; [`reply_of`] returns the reply then, or
/// `{ ok: 1 }`. A command that the server refuses because of its `$clusterTime` is sent again without
/// it.
///
/// - `write_errors_in_reply`: whether a reply with write errors is no error.
pub(super) async fn exchange<P: Platform>(
    guard: &mut Guard<'_, Net<P>>,
    client: &Client<P>,
    session: &mut SessionState<P>,
    parts: &Parts<'_>,
    write_errors_in_reply: bool,
) -> Result<(), Error> {
    let mut parts = *parts;
    loop {
        let span = client.command_span(guard, session, &parts);
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| session.write(client, body, &parts);
        let sending = async {
            if parts.has_reply {
                guard.run_command(parts.database, write).await.map(drop)
            } else {
                guard.send_command(parts.database, write).await
            }
        };
        let outcome = match &span {
            None => sending.await,
            Some(span) => Box::pin(span.run(sending)).await,
        };
        if let (Ok(()) | Err(OperationError::Command { .. }), Some(reply)) = (&outcome, guard.reply()) {
            session.handle_reply(client, reply, &parts.additions);
        }
        let result = match outcome {
            Ok(()) if write_errors_in_reply || !guard.has_write_errors() => {
                session.handle_success();
                Ok(())
            }
            Ok(()) => Err(Error::Write(Box::new(WriteError::new(guard.server().address(), document_of(guard))))),
            Err(OperationError::Command { code, .. }) => Err(refusal(guard, code)),
            Err(error) => Err(Error::from(error)),
        };
        if let Some(span) = &span {
            span.record(result.as_ref().err(), guard.reply());
        }
        match result {
            Err(Error::Command(error))
                if CLUSTER_TIME_REFUSED.contains(&error.code)
                    && session.forget_cluster_time(client, &mut parts.additions) => {}
            result => return result,
        }
    }
}

/// Runs a command in a session, without a transaction number, and waits for its reply, which
/// [`reply_of`] returns then.
///
/// - `command`: the result of [`checked`].
pub(super) async fn run_once<P: Platform>(
    guard: &mut Guard<'_, Net<P>>,
    client: &Client<P>,
    session: &mut SessionState<P>,
    database: &str,
    command: RawDocument<'_>,
    preference: Option<&ReadPreference<'_>>,
    max_time: MaxTime,
) -> Result<(), Error> {
    let shape = CommandShape::parse(command).map_err(|error| Error::Bson(error.to_string()))?;
    let additions = session.begin(client, &shape, guard, false, None, max_time)?;
    let parts = Parts { database, command, preference, additions, has_reply: shape.has_reply };
    exchange(guard, client, session, &parts, false).await.map_err(|error| {
        session.handle_attempt_failed(guard, &error, &additions);
        session.failed(error)
    })
}

/// Returns the last reply.
pub(super) fn reply_of<'a, P: Platform>(guard: &'a Guard<'_, Net<P>>) -> Result<RawDocument<'a>, Error> {
    Ok(guard.reply().ok_or(OperationError::Broken(Cause::Closed))?)
}

/// Returns the last reply, converted.
///
/// # Errors
///
/// [`Error::Bson`]: the server has executed the command, but `read` refuses the reply.
pub(super) fn converted<P: Platform, T>(guard: &Guard<'_, Net<P>>, read: Read<T>) -> Result<T, Error> {
    read(reply_of(guard)?).map_err(|fault| {
        let server = guard.server().address();
        Error::Bson(format!("{server}: the command was executed, but its reply was not converted: {fault}"))
    })
}

/// Returns the last reply for an error.
fn document_of<P: Platform>(guard: &Guard<'_, Net<P>>) -> bson::Document {
    guard.reply().map(to_document_lossy).unwrap_or_default()
}

fn refusal<P: Platform>(guard: &Guard<'_, Net<P>>, code: i32) -> Error {
    let reply = document_of(guard);
    let message = reply.get_str("errmsg").unwrap_or_default();
    Error::Command(Box::new(CommandError {
        server: guard.server().address().to_owned(),
        code,
        code_name: reply.get_str("codeName").ok().map(str::to_owned),
        message: reply.get_str("errmsg").ok().map(str::to_owned),
        labels: labels(&reply),
        hint: if guard.is_direct() && StateChange::of_code(code) == Some(StateChange::NotWritablePrimary) {
            Some(DIRECT)
        } else if code == 20 && message.starts_with("Transaction numbers") {
            Some(NO_NUMBERS)
        } else {
            hint::of_refusal(code, message)
        },
        reply,
    }))
}

const DIRECT: &str =
    "directConnection=true reached a member that is not the primary; without it, the client finds the primary";

/// The hint for an `IllegalOperation` (code 20) of a deployment without retryable writes.
///
/// Source: Retryable Writes, on unsupported storage engines.
const NO_NUMBERS: &str =
    "this deployment does not support retryable writes: set retryWrites=false in the connection string";
