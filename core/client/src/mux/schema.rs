//! Whether the nodes have the same schema.

use super::call::Content;
use super::request::Flight;
use super::{RejectionReason, Reply, RequestError, Session, Shared};
use crate::{Platform, lock};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::mux::AcquireError;
use poolhouse_cql::Consistency;
use poolhouse_driver::BaseRuntime as _;

/// The pause between two readings.
const PAUSE: Duration = Duration::from_millis(200);

/// The time limit of a reading.
const READING: Duration = Duration::from_secs(2);

const VERSION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

impl<P: Platform> Session<P> {
    /// Waits until all hosts that the session uses have the same schema. Returns false if they do not
    /// after this time.
    ///
    /// [`Call::send`](super::Call::send) does this after each statement that changes the schema: call it if
    /// [`SessionOptions::schema_agreement`](super::SessionOptions::schema_agreement) is off, or after a change
    /// by another client. Without it, the next request may go to a node that does not have the new table yet,
    /// and two changes at the same time contradict each other: nodes execute them independently.
    ///
    /// Reads the version in `system.local` of each host, local and remote, for at most 2 s, and reads
    /// them again after a pause of 200 ms while they differ or a host does not answer. A host without
    /// a connection does not count, after an attempt to connect has failed.
    ///
    /// Cost: one small request for each host and reading.
    ///
    /// # Errors
    ///
    /// As [`Call::send`](super::Call::send), if no host has answered in this time; [`RequestError::Unexpected`] or
    /// [`RequestError::Reply`] if an answer is no version.
    ///
    /// # Example
    ///
    /// ```
    /// use core::time::Duration;
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    ///
    /// async fn after_migration<P: Platform>(session: &Session<P>) -> Result<bool, RequestError> {
    ///     session.schema_agreement(Duration::from_secs(10)).await
    /// }
    /// ```
    pub async fn schema_agreement(&self, limit: Duration) -> Result<bool, RequestError> {
        self.inner.shared.schema_agreement(limit).await
    }
}

impl<P: Platform> Shared<P> {
    async fn schema_agreement(&self, limit: Duration) -> Result<bool, RequestError> {
        let deadline = self.now().saturating_add(limit);
        let (mut has_answered, mut failure) = (false, None);
        loop {
            // In the child of a fork, the lock of the hosts may be held for ever.
            self.check_fork()?;
            let left = deadline.saturating_since(self.now());
            let timeout = left.min(READING).min(self.options.request_timeout.unwrap_or(READING));
            let (mut replies, mut is_complete) = (Vec::new(), true);
            for outcome in self.ask_hosts(timeout).await {
                match outcome {
                    Ok(reply) => replies.push(reply),
                    Err(error) if is_temporary(&error) => {
                        is_complete &= is_down(&error);
                        failure = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            has_answered |= !replies.is_empty();
            let versions = replies.iter().map(version).collect::<Result<Vec<_>, _>>()?;
            let are_equal = versions.windows(2).all(|pair| pair[0] == pair[1]);
            if is_complete && are_equal && !versions.is_empty() {
                return Ok(true);
            }
            let next = self.now().saturating_add(PAUSE);
            if next >= deadline {
                if has_answered {
                    return Ok(false);
                }
                self.check_open()?;
                return Err(failure.unwrap_or_else(|| self.no_host(false)));
            }
            self.runtime.sleep_until(next).await;
        }
    }

    /// Waits for the agreement after a statement that has changed the schema, unless the options leave that
    /// to the application.
    pub(super) async fn agree_after(&self, reply: &Reply) -> Result<(), RequestError> {
        if !reply.is_schema_change() {
            return Ok(());
        }
        self.forget_statements();
        let Some(limit) = self.options.schema_agreement else { return Ok(()) };
        // The statement was executed. The caller needs to know that, and not why a reading failed.
        if matches!(self.schema_agreement(limit).await, Ok(true)) {
            Ok(())
        } else {
            Err(RequestError::SchemaDisagreement { limit })
        }
    }

    /// Forgets the statements of texts with values, because the schema has changed: their variables may have too.
    pub(super) fn forget_statements(&self) {
        lock(&self.statements).clear();
    }

    /// Reads the version of each host at the same time.
    async fn ask_hosts(&self, timeout: Duration) -> Vec<Result<Reply, RequestError>> {
        let hosts = self.hosts();
        let asked = hosts.used().iter().map(|host| {
            Box::pin(async move {
                let host = [host.id];
                let call = self.call(Content::Text(VERSION)).consistency(Consistency::One);
                // Not by `send`: this is no operation of the application, for its metrics and spans.
                Flight::new(call.hosts(&host).timeout(timeout)).await
            })
        });
        let mut asked: Vec<_> = asked.collect();
        let mut outcomes = Vec::with_capacity(asked.len());
        poll_fn(|context| {
            asked.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(outcome) => {
                    outcomes.push(outcome);
                    false
                }
                Poll::Pending => true,
            });
            if asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        outcomes
    }
}

/// Whether another reading may succeed.
const fn is_temporary(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::NoHost(_) | RequestError::Lost { .. } | RequestError::TimedOut { .. } | RequestError::Server(_)
    )
}

/// Whether the host has no connection, and none is expected soon.
fn is_down(error: &RequestError) -> bool {
    let RequestError::NoHost(hosts) = error else { return false };
    hosts.iter().all(|host| {
        matches!(
            host.reason,
            RejectionReason::Pool(AcquireError::Down { .. } | AcquireError::Ignored | AcquireError::Closed)
        )
    })
}

/// The version in an answer.
fn version(reply: &Reply) -> Result<&[u8], RequestError> {
    let unexpected = RequestError::Unexpected(reply.header.opcode);
    let mut rows = reply.rows()?;
    match (rows.next().and_then(|mut cells| cells.next().flatten()), rows.next()) {
        (Some(version), None) => Ok(version),
        _ => Err(unexpected),
    }
}
