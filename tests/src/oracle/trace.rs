//! Recorded traces of the pool events of a client, with their times. They can be written, and
//! checked by the event part of the [oracle](super::pool).
//!
//! The calls are unknown. Only the events can be checked: their grammar and order, limits,
//! durations, numbers.

use super::pool::Oracle;
use super::{Checks, Violation};
use crate::machines::pool::Event;
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolOptions};
use poolhouse_core::{Cause, Instant};
use poolhouse_driver::{EventKinds, Notice, Subscribers, Subscription};
use serde_json::{Value, json};

/// Maximum number of queued events. A case emits fewer.
const NOTICES_MAX: usize = 1 << 20;

/// Events of pools in order: time, pool, event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<(Instant, u64, Event)>);

/// Records the pool events of a client.
#[derive(Debug)]
pub struct Recorder {
    subscription: Subscription,
    trace: Trace,
    /// Events were lost, so the rest of the trace proves nothing.
    lost: bool,
}

impl Recorder {
    /// Starts to record. Call it before the client is created, so the trace is complete.
    #[must_use]
    pub fn new(subscribers: &Subscribers) -> Self {
        let subscription = subscribers.subscribe(EventKinds::POOLS | EventKinds::CHECK_OUTS, NOTICES_MAX, |_| true);
        Self { subscription, trace: Trace::default(), lost: false }
    }

    /// The trace so far; `None` when events were lost.
    pub fn take(&mut self) -> Option<Trace> {
        while let Some(notice) = self.subscription.try_next() {
            match notice {
                Notice::Event { at, event: poolhouse_driver::Event::Pool(event) } => {
                    self.trace.0.push((at, event.pool().get(), Event::of(&event)));
                }
                Notice::Event { .. } => {}
                _ => self.lost = true,
            }
        }
        let trace = core::mem::take(&mut self.trace);
        (!self.lost).then_some(trace)
    }
}

impl Trace {
    /// Checks the events of each pool.
    ///
    /// # Errors
    ///
    /// The first broken invariant, and the event that breaks it.
    pub fn judge(&self, checks: &mut Checks) -> Result<(), Violation> {
        let mut pools: BTreeMap<u64, Vec<(Instant, Event)>> = BTreeMap::new();
        for &(at, pool, event) in &self.0 {
            pools.entry(pool).or_default().push((at, event));
        }
        for (pool, events) in pools {
            let mut oracle = Oracle::default();
            for (place, (at, event)) in events.iter().enumerate() {
                oracle.event(*at, event, checks).map_err(|found| Violation {
                    what: format!("{} (pool {pool}, event {place} of {}: {event:?})", found.what, events.len()),
                    ..found
                })?;
            }
        }
        Ok(())
    }

    /// As JSON, without causes, which are not checked.
    #[must_use]
    pub fn json(&self) -> Value {
        self.0.iter().map(|(at, pool, event)| json!([at.as_nanos(), pool, write(event)])).collect()
    }

    /// Reads the output of [`Trace::json`]; `simulate --events` checks it again.
    ///
    /// # Errors
    ///
    /// Describes the text that cannot be parsed.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let events = value.as_array().ok_or("a trace is a list")?;
        let read = |entry: &Value| {
            let at = entry[0].as_u64()?;
            let pool = entry[1].as_u64()?;
            Some((Instant::from_nanos(at), pool, read(&entry[2])?))
        };
        events
            .iter()
            .map(|entry| read(entry).ok_or_else(|| format!("not an event: {entry}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

const REASONS: [ClosedReason; 4] =
    [ClosedReason::Stale, ClosedReason::Idle, ClosedReason::Error, ClosedReason::PoolClosed];

/// The errors of check-outs, one for each kind.
const ERRORS: [CheckOutError; 7] = [
    CheckOutError::PoolClosed,
    CheckOutError::PoolCleared { cause: None },
    CheckOutError::WaitQueueTimeout { usage: None },
    CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: false },
    CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true },
    CheckOutError::Busy { waiting: 0 },
    CheckOutError::Cancelled,
];

fn kind_of(error: CheckOutError) -> usize {
    match error {
        CheckOutError::PoolClosed => 0,
        CheckOutError::PoolCleared { .. } => 1,
        CheckOutError::WaitQueueTimeout { .. } => 2,
        CheckOutError::EstablishFailed { overloaded: false, .. } => 3,
        CheckOutError::EstablishFailed { overloaded: true, .. } => 4,
        CheckOutError::Busy { .. } => 5,
        CheckOutError::Cancelled => 6,
        // It would be read as a different error.
        _ => unreachable!("{error:?} has no number among ERRORS"),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn write(event: &Event) -> Value {
    match *event {
        Event::PoolCreated(options) => json!(["created", {
            "maxPoolSize": options.max_pool_size,
            "minPoolSize": options.min_pool_size,
            "maxIdleTimeNS": options.max_idle_time.map(nanos),
            "maxConnecting": options.max_connecting,
            "waitQueueTimeoutNS": options.wait_queue_timeout.map(nanos),
            "loadBalanced": options.load_balanced,
            "background": options.background,
        }]),
        Event::PoolReady => json!(["ready"]),
        Event::PoolCleared { service, interrupt, .. } => json!(["cleared", service.map(|id| id.0), interrupt]),
        Event::PoolClosed => json!(["closed"]),
        Event::Created(conn) => json!(["connectionCreated", conn]),
        Event::Ready(conn, duration) => json!(["connectionReady", conn, nanos(duration)]),
        Event::Closed(conn, reason, _) => json!(["connectionClosed", conn, reason.name()]),
        Event::Started => json!(["started"]),
        Event::Failed(reason, error, duration) => json!(["failed", reason.name(), kind_of(error), nanos(duration)]),
        Event::CheckedOut(conn, duration) => json!(["checkedOut", conn, nanos(duration)]),
        Event::CheckedIn(conn) => json!(["checkedIn", conn]),
    }
}

fn read(value: &Value) -> Option<Event> {
    let number = |place: usize| value[place].as_u64();
    let duration = |place: usize| number(place).map(Duration::from_nanos);
    Some(match value[0].as_str()? {
        "created" => Event::PoolCreated(read_options(&value[1])?),
        "ready" => Event::PoolReady,
        "cleared" => {
            let bytes = |id: &Vec<Value>| -> Option<Vec<u8>> {
                id.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect()
            };
            let service = match value[1].as_array() {
                Some(id) => Some(poolhouse_core::ObjectId(bytes(id)?.try_into().ok()?)),
                None => None,
            };
            Event::PoolCleared { service, interrupt: value[2].as_bool()?, cause: None }
        }
        "closed" => Event::PoolClosed,
        "connectionCreated" => Event::Created(number(1)?),
        "connectionReady" => Event::Ready(number(1)?, duration(2)?),
        "connectionClosed" => {
            let reason = REASONS.into_iter().find(|reason| value[2] == *reason.name())?;
            Event::Closed(number(1)?, reason, None)
        }
        "started" => Event::Started,
        "failed" => {
            let error = *ERRORS.get(usize::try_from(number(2)?).ok()?)?;
            let reasons = [
                CheckOutFailedReason::PoolClosed,
                CheckOutFailedReason::Timeout,
                CheckOutFailedReason::ConnectionError,
            ];
            let reason = reasons.into_iter().find(|reason| value[1] == *reason.name())?;
            Event::Failed(reason, error, duration(3)?)
        }
        "checkedOut" => Event::CheckedOut(number(1)?, duration(2)?),
        "checkedIn" => Event::CheckedIn(number(1)?),
        _ => return None,
    })
}

fn read_options(value: &Value) -> Option<PoolOptions> {
    let count = |name: &str| u32::try_from(value[name].as_u64()?).ok();
    let limit = |name: &str| match value.get(name)? {
        Value::Null => Some(None),
        limit => limit.as_u64().map(Duration::from_nanos).map(Some),
    };
    Some(PoolOptions {
        max_pool_size: count("maxPoolSize")?,
        min_pool_size: count("minPoolSize")?,
        max_idle_time: limit("maxIdleTimeNS")?,
        max_connecting: count("maxConnecting")?,
        wait_queue_timeout: limit("waitQueueTimeoutNS")?,
        load_balanced: value["loadBalanced"].as_bool()?,
        limits_establishing: false,
        reuse: poolhouse_core::pool::Reuse::Newest,
        background: value["background"].as_bool()?,
    })
}

#[cfg(test)]
mod tests;
