//! Speculative execution: a request that is sent to further hosts while no answer arrives.

use super::error::RequestError;
use super::plan::{Hosts, Plan};
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
    /// As [`Session::request`]: an error of a server is an answer. Of several other errors, the first
    /// after which a server may have executed the request; without such an error, the last.
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
        let mut hosts = shared.hosts();
        let mut order = shared.order(&hosts, &options);
        let mut count = speculation.hosts_max.min(order.len()).max(1);
        let mut rejecting: Vec<MuxId> = Vec::new();
        let mut is_renewed = options.hosts.is_some();
        let attempt = |hosts: Vec<MuxId>, timeout| async move {
            let (timeout, hosts) = (Some(timeout), Some(&hosts[..]));
            self.request_with(request, RequestOptions { timeout, idempotent: true, hosts, ..options }).await
        };
        let mut started = 0;
        let mut running = Vec::new();
        let mut failure: Option<RequestError> = None;
        loop {
            let now = shared.now();
            let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(now.saturating_since(begun)));
            let has_failed = running.is_empty() && started == count;
            if has_failed && !is_renewed && matches!(failure, Some(RequestError::NoHost(_))) {
                is_renewed = true;
                // The hosts may have been replaced while removed ones were tried.
                let current = shared.hosts();
                if !Arc::ptr_eq(&hosts, &current) {
                    hosts = current;
                    order = shared.order(&hosts, &options);
                    order.retain(|host| !rejecting.contains(host));
                    (started, count) = (0, speculation.hosts_max.max(1).min(order.len()));
                }
            }
            // Without time, only the first attempt begins: its result is the error.
            if left.is_zero() && (started > 0 || failure.is_some()) {
                started = count;
            }
            if started < count {
                // Each attempt begins at another host, and tries the others after it.
                let hosts = order.iter().cycle().skip(started).take(order.len()).copied().collect();
                running.push(Box::pin(attempt(hosts, left)));
                started += 1;
            }
            if running.is_empty() {
                if let Some(error) = failure {
                    return Err(error);
                }
            }
            let mut expiry = pin!(async {
                if started < count {
                    shared.runtime.sleep_until(now.saturating_add(speculation.delay)).await;
                } else {
                    pending().await
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
                    if let RequestError::NoHost(rejections) = &error {
                        rejecting.extend(rejections.iter().map(|one| one.host));
                    }
                    if !failure.as_ref().is_some_and(RequestError::may_have_executed) {
                        failure = Some(error);
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
    fn order(&self, hosts: &Arc<Hosts>, options: &RequestOptions<'_>) -> Vec<MuxId> {
        let RequestOptions { hosts: chosen, routing, .. } = *options;
        if let Some(chosen) = chosen {
            return chosen.to_vec();
        }
        let turn = self.speculations.fetch_add(1, Ordering::Relaxed);
        let Some(first) = hosts.first(turn, None, routing).map(|host| host.id) else { return Vec::new() };
        let mut plan = Plan::after(first, Arc::clone(hosts), turn, None, routing);
        let mut order = Vec::from([first]);
        while let Some(host) = plan.next() {
            order.push(host.id);
        }
        order
    }
}
