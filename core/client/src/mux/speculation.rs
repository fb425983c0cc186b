//! Speculative execution: a request that is sent to further hosts while no answer arrives.

use super::error::RequestError;
use super::plan::Plan;
use super::request::RequestOptions;
use super::{Reply, Session, Shared};
use crate::Platform;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{pending, poll_fn};
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::Request;
use poolhouse_driver::BaseRuntime as _;

/// When a request is sent to further hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Speculation {
    /// The time without an answer after which the request is sent to the next host. A good value is
    /// longer than nearly all requests need.
    pub delay: Duration,
    /// The maximum number of hosts at a time.
    pub hosts_max: usize,
}

impl<P: Platform> Session<P> {
    /// [`Session::request_with`] for a request whose execution twice is harmless: it is sent to
    /// another host whenever `delay` has passed without an answer, and when it has failed at all
    /// hosts so far. The first answer is the result, and the other attempts are cancelled.
    ///
    /// - `options`: `idempotent` need not be set. The time limit is that of all attempts together.
    ///
    /// Cost: that of [`Session::request_with`] for each attempt, and a list of the hosts.
    ///
    /// # Errors
    ///
    /// As [`Session::request`]: an error of a server is an answer. Of several other errors, the last.
    pub async fn request_speculatively(
        &self,
        request: &Request<'_>,
        options: RequestOptions<'_>,
        speculation: Speculation,
    ) -> Result<Reply, RequestError> {
        let shared = &*self.inner.shared;
        shared.check_fork()?;
        let begun = shared.now();
        let limit = options.timeout.or(shared.options.request_timeout);
        let order = shared.order(&options);
        let count = speculation.hosts_max.min(order.len()).max(1);
        // Each attempt begins at another host, and tries the others after it.
        let orders: Vec<Vec<MuxId>> =
            (0..count).map(|first| order.iter().cycle().skip(first).take(order.len()).copied().collect()).collect();
        let mut waiting = orders.iter();
        let mut running = Vec::new();
        loop {
            let now = shared.now();
            if let Some(hosts) = waiting.next() {
                let timeout = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(now.saturating_since(begun)));
                let options =
                    RequestOptions { timeout: Some(timeout), idempotent: true, hosts: Some(hosts), ..options };
                running.push(Box::pin(self.request_with(request, options)));
            }
            let mut expiry = pin!(async {
                match waiting.len() {
                    0 => pending().await,
                    _ => shared.runtime.sleep_until(now.saturating_add(speculation.delay)).await,
                }
            });
            let ended = poll_fn(|context| {
                for (place, attempt) in running.iter_mut().enumerate() {
                    if let Poll::Ready(result) = attempt.as_mut().poll(context) {
                        return Poll::Ready(Some((place, result)));
                    }
                }
                expiry.as_mut().poll(context).map(|()| None)
            });
            match ended.await {
                Some((place, Err(error))) if !matches!(error, RequestError::Server(_)) => {
                    drop(running.swap_remove(place));
                    if running.is_empty() && waiting.len() == 0 {
                        return Err(error);
                    }
                }
                Some((_, result)) => return result,
                None => {}
            }
        }
    }
}

impl<P: Platform> Shared<P> {
    /// Returns the hosts of the next query plan, in their order.
    fn order(&self, options: &RequestOptions<'_>) -> Vec<MuxId> {
        let RequestOptions { hosts: chosen, routing, .. } = *options;
        if let Some(chosen) = chosen {
            return chosen.to_vec();
        }
        let turn = self.speculations.fetch_add(1, Ordering::Relaxed);
        let hosts = self.hosts();
        let Some(first) = hosts.first(turn, None, routing).map(|host| host.id) else { return Vec::new() };
        let mut plan = Plan::after(first, Arc::clone(&hosts), turn, None, routing);
        let mut order = Vec::from([first]);
        while let Some(host) = plan.next() {
            order.push(host.id);
        }
        order
    }
}
