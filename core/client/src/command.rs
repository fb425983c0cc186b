//! Commands on a connection that the client selects.
//!
//! Read first: Run Command, "Implementation requirements".

use super::options::tag_sets;
use super::{Client, Error, Net, Platform, connection};
use alloc::string::ToString;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::selection::{ReadPreference, SelectionCriteria};
use poolhouse_driver::{CommandOptions, Guard, RetryPolicy, SelectionRequest};
use poolhouse_wire::bson::RawDocument;

impl<P: Platform> Client<P> {
    /// Runs a command on a server that accepts writes, and returns the reply if its `ok` is 1.
    ///
    /// The command is sent unchanged, except that `$db` is added, and `$readPreference` where the
    /// server requires it. The command is not inspected: if it already has one of these two fields,
    /// the result is undefined, and servers refuse duplicate fields. Of the client's options, only
    /// the time limits apply: see [`CommandOptions`].
    ///
    /// The operation may take as long as
    /// [`ClientOptions::timeout`](super::ClientOptions#structfield.timeout) allows. A command that
    /// failed before it was sent is retried once. After an overload error it is retried up to
    /// [`max_adaptive_retries`](super::ClientOptions#structfield.max_adaptive_retries) times,
    /// without a pause, because backoff is not implemented yet. An overload error means that the
    /// server refused the command, or that the connection for it was refused, reset or timed out
    /// before the reply to hello. With `retryReads=false` or `retryWrites=false`, a command is
    /// never retried.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] if the server refuses the command; [`Error::Operation`] if no server can
    /// be selected, no connection is available, or no reply is received; [`Error::Bson`] if a
    /// document cannot be encoded or is empty.
    ///
    /// Source: Run Command.
    pub async fn run_command(&self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        self.run_command_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command as [`Client::run_command`] does, with options for this command.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command_with(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<bson::Document, Error> {
        let bytes = command.to_vec().map_err(|error| Error::Bson(error.to_string()))?;
        self.run(database, &bytes, options, connection::to_document).await
    }

    /// Runs a command as [`Client::run_command`] does, without decoding documents: the bytes are
    /// sent, and the reply is returned, unchanged.
    ///
    /// Cost: one allocation, for the reply.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command(
        &self,
        database: &str,
        command: &bson::RawDocument,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.run_raw_command_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command as [`Client::run_raw_command`] does, with options for this command.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command_with(
        &self,
        database: &str,
        command: &bson::RawDocument,
        options: CommandOptions<'_>,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.run(database, command.as_bytes(), options, connection::to_raw_document).await
    }

    async fn run<T>(
        &self,
        database: &str,
        command: &[u8],
        options: CommandOptions<'_>,
        read: fn(RawDocument<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Checked first, so an invalid command fails before a server is selected.
        let command = connection::checked(command)?;
        let inherited = (options.client_read_preference && options.read_preference.is_none())
            .then_some(&self.options().read_preference);
        let pairs = inherited.map(|preference| preference.pairs()).unwrap_or_default();
        let tag_sets = tag_sets(&pairs);
        let read_preference = match inherited {
            Some(preference) => Some(preference.borrowed(&tag_sets).validate()?),
            None => options.read_preference,
        };
        let deadline = self.deadline(options.timeout.or(self.options().timeout));
        let policy = self.retry_policy(options.idempotent);
        let mut attempts = self.inner.core.attempts::<Error>(self.criteria(read_preference), deadline, policy);
        loop {
            let mut guard = attempts.next().await?;
            let sent = guard.preference_to_send(read_preference, self.options().direct_connection);
            if self.is_paced(deadline) {
                self.pace(&mut guard);
            }
            match connection::exchange(&mut guard, database, command, sent.as_ref(), read).await {
                Ok(reply) => return Ok(reply),
                Err(error) => attempts.failed(error)?,
            }
        }
    }

    /// Returns the retry policy of a command. An idempotent command is retried in the same cases as
    /// a read. For any other command, the client does not know whether it reads or writes, so both
    /// `retryReads` and `retryWrites` must be enabled for a retry.
    ///
    /// Source: Client Backpressure, "Overload retry policy", on runCommand.
    fn retry_policy(&self, idempotent: bool) -> RetryPolicy {
        let options = self.options();
        RetryPolicy {
            enabled: options.retry_reads && (idempotent || options.retry_writes),
            idempotent,
            max_adaptive_retries: options.max_adaptive_retries,
            enable_overload_retargeting: options.enable_overload_retargeting,
        }
    }

    /// Returns the criteria by which an operation selects a server.
    pub(super) fn criteria<'a>(&self, read_preference: Option<ReadPreference<'a>>) -> SelectionCriteria<'a> {
        let criteria = read_preference.map_or(SelectionCriteria::write(), SelectionCriteria::read);
        criteria
            .with_local_threshold(self.inner.options.local_threshold)
            .with_heartbeat_frequency(self.inner.options.monitor.heartbeat_frequency)
    }

    pub(super) fn selection_request<'a>(&self, read_preference: Option<ReadPreference<'a>>) -> SelectionRequest<'a> {
        SelectionRequest { criteria: self.criteria(read_preference), deprioritized: &[] }
    }

    /// Returns the deadline of an operation that starts now.
    pub(super) fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.map(|timeout| self.now().saturating_add(timeout))
    }

    /// Whether `socketTimeoutMS` limits each command, which is the case only without a deadline.
    pub(super) fn is_paced(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none() && self.options().socket_timeout.is_some()
    }

    /// Starts the `socketTimeoutMS` of the next command.
    pub(super) fn pace(&self, guard: &mut Guard<'_, Net<P>>) {
        guard.set_deadline(self.deadline(self.options().socket_timeout));
    }
}
