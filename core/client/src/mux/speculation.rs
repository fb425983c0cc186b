//! Speculative execution: a request that is sent to further hosts while no answer arrives.

use super::call::Call;
use super::error::RequestError;
use super::plan::{Hosts, Plan};
use super::request::{Flight, renew};
use super::{Reply, Shared};
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
use poolhouse_driver::BaseRuntime as _;

/// When a call is sent to further hosts: [`Call::speculation`](super::Call::speculation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Speculation {
    /// The time without an answer after which the request is sent to the next host. A good value is
    /// longer than nearly all requests need.
    pub delay: Duration,
    /// The maximum number of hosts at a time.
    pub hosts_max: usize,
}

impl<P: Platform> Shared<P> {
    /// Sends a ready call to another host whenever its delay has passed without an answer, and when it has
    /// failed at all hosts so far. The first answer is the result, and the other attempts are cancelled. An
    /// error of a server is an answer. Of several other errors, the result is the first after which a server
    /// may have executed the call; without such an error, the last.
    pub(super) async fn speculate(&self, call: &Call<'_, P>, speculation: Speculation) -> Result<Reply, RequestError> {
        let reply = self.speculate_with(call, speculation).await?;
        self.agree_after(&reply).await?;
        Ok(reply)
    }

    async fn speculate_with(&self, call: &Call<'_, P>, speculation: Speculation) -> Result<Reply, RequestError> {
        self.check_fork()?;
        let begun = self.now();
        let mut hosts = self.hosts();
        let mut order = self.order(&hosts, call);
        if order.is_empty() && call.hosts.is_none() {
            self.check_open()?;
            return Err(self.no_host(false));
        }
        let mut count = speculation.hosts_max.min(order.len()).max(1);
        let mut rejecting: Vec<MuxId> = Vec::new();
        let mut is_renewed = call.hosts.is_some();
        let begin =
            |hosts: Vec<MuxId>, timeout| async move { attempt(&call.clone().timeout(timeout).hosts(&hosts)).await };
        let mut started = 0;
        let mut running = Vec::new();
        let mut failure: Option<RequestError> = None;
        loop {
            let now = self.now();
            let left = call.limit().map_or(Duration::MAX, |limit| limit.saturating_sub(now.saturating_since(begun)));
            let has_failed = running.is_empty() && started == count;
            if has_failed && !is_renewed && matches!(failure, Some(RequestError::NoHost(_))) {
                is_renewed = true;
                // The hosts may have been replaced while removed ones were tried.
                let current = self.hosts();
                if !Arc::ptr_eq(&hosts, &current) {
                    hosts = current;
                    order = self.order(&hosts, call);
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
                if !running.is_empty() {
                    self.events.speculated();
                }
                running.push(Box::pin(begin(hosts, left)));
                started += 1;
            }
            if running.is_empty() {
                if let Some(error) = failure {
                    return Err(error);
                }
            }
            let mut expiry = pin!(async {
                if started < count {
                    self.runtime.sleep_until(now.saturating_add(speculation.delay)).await;
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

/// Sends a call, and does the rest, without the wait for the schema: that is not part of an answer.
async fn attempt<P: Platform>(call: &Call<'_, P>) -> Result<Reply, RequestError> {
    let mut flight = Flight::new(call);
    let result = (&mut flight).await;
    if result.is_err() && call.is_unsettled(&result) { renew(call, flight.deadline(), result).await } else { result }
}

impl<P: Platform> Shared<P> {
    /// Returns the hosts of the next query plan, in their order.
    fn order(&self, hosts: &Arc<Hosts>, call: &Call<'_, P>) -> Vec<MuxId> {
        if let Some(chosen) = call.hosts {
            return chosen.to_vec();
        }
        let routing = call.body.routing();
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
