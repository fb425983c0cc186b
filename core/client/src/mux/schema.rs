//! Whether the nodes have the same schema.

use super::request::RequestOptions;
use super::{Reply, RequestError, Session};
use crate::Platform;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use poolhouse_cql::{Consistency, Parameters, Request};
use poolhouse_driver::BaseRuntime as _;

/// The pause between two readings.
const PAUSE: Duration = Duration::from_millis(200);

const VERSION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

impl<P: Platform> Session<P> {
    /// Waits until all hosts that the session uses have the same schema. Returns false if they do not
    /// after this time.
    ///
    /// Call it after a statement that changes the schema, and send no second such statement before it
    /// returns true: nodes execute them independently. Without it, the next request may go to a node
    /// that does not have the new table yet.
    ///
    /// Reads the version in `system.local` of each host, local and remote, and reads them again after
    /// a pause of 200 ms while they differ. A host that does not answer does not count, unless none
    /// does.
    ///
    /// Cost: one small request for each host and reading.
    ///
    /// # Errors
    ///
    /// As [`Session::request`], if no host answers, or after an error that another reading would not
    /// mend; [`RequestError::Unexpected`] if the answer is no version.
    ///
    /// # Example
    ///
    /// ```
    /// use core::time::Duration;
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    /// use poolhouse_cql::Consistency;
    ///
    /// async fn create<P: Platform>(session: &Session<P>) -> Result<bool, RequestError> {
    ///     session.query("CREATE TABLE shop.orders (id int PRIMARY KEY)", Consistency::One).await?;
    ///     session.schema_agreement(Duration::from_secs(10)).await
    /// }
    /// ```
    pub async fn schema_agreement(&self, limit: Duration) -> Result<bool, RequestError> {
        let shared = &*self.inner.shared;
        let deadline = shared.now().saturating_add(limit);
        loop {
            let left = deadline.saturating_since(shared.now());
            let timeout = left.min(shared.options.request_timeout.unwrap_or(Duration::MAX));
            let (mut replies, mut failure) = (Vec::new(), None);
            for outcome in self.ask_hosts(timeout).await {
                match outcome {
                    Ok(reply) => replies.push(reply),
                    Err(error) if is_unanswered(&error) => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
            let versions = replies.iter().map(version).collect::<Result<Vec<_>, _>>()?;
            if !versions.is_empty() && versions.windows(2).all(|pair| pair[0] == pair[1]) {
                return Ok(true);
            }
            let next = shared.now().saturating_add(PAUSE);
            if next >= deadline {
                return failure.filter(|_| replies.is_empty()).map_or(Ok(false), Err);
            }
            shared.runtime.sleep_until(next).await;
        }
    }

    /// Reads the version of each host at the same time.
    async fn ask_hosts(&self, timeout: Duration) -> Vec<Result<Reply, RequestError>> {
        let request = Request::Query { text: VERSION, parameters: Parameters::new(Consistency::One) };
        let hosts = self.inner.shared.hosts();
        let request = &request;
        let asked = hosts.used().iter().map(|host| {
            Box::pin(async move {
                let (host, timeout) = ([host.id], Some(timeout));
                let options = RequestOptions { timeout, hosts: Some(&host), ..RequestOptions::default() };
                self.request_with(request, options).await
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

/// Whether a host has not answered.
const fn is_unanswered(error: &RequestError) -> bool {
    matches!(error, RequestError::NoHost(_) | RequestError::Lost { .. } | RequestError::TimedOut { .. })
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
