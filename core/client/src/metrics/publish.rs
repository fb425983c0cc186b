//! Metrics of the driver.

use super::client::ClientMetrics;
use super::mux::MuxMetrics;
use super::{PoolMetrics, has_recorder};
use crate::events::System;
use crate::lock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer as _;
use poolhouse_core::mux::{Distance, MuxEvent};
use poolhouse_core::observe::{EventContext, contain};
use poolhouse_driver::{EventKinds, EventRef, Publish};
use std::sync::Mutex;

/// Publishes the metrics of a client, a session or a generic pool, and those of each of its servers. A panic
/// of the recorder is caught. If it occurs when series are registered, their owner has no metrics; if it
/// occurs later, one event is lost.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// `None` without a recorder.
    client: Option<Arc<ClientMetrics>>,
    system: System,
    of_server: OfServer,
}

/// Metrics of the server to which this instance belongs. The lock is never contended: events are published
/// under the lock of their pool.
#[derive(Clone, Default)]
enum OfServer {
    #[default]
    None,
    Pool(Arc<Mutex<PoolMetrics>>),
    /// The address, until the host is used first.
    Mux(Arc<Mutex<Result<MuxMetrics, Box<str>>>>),
}

impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Pool(_) => "Pool(..)",
            Self::Mux(_) => "Mux(..)",
        })
    }
}

impl Metrics {
    /// Creates the metrics of a MongoDB client.
    #[must_use]
    pub fn new() -> Self {
        Self::of(System::Mongodb)
    }

    pub(crate) fn of(system: System) -> Self {
        let has_operations = system != System::Generic && has_recorder();
        let client = has_operations.then(|| contain(|| ClientMetrics::new(system))).flatten().map(Arc::new);
        Self { client, system, of_server: OfServer::None }
    }

    /// Registers the series of a host with the event by which it is used first: most nodes of a cluster may be
    /// ignored.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event has the distance of the host")]
    fn on_mux_event(&self, mux: &mut Result<MuxMetrics, Box<str>>, now: Instant, event: &MuxEvent) {
        let is_used = match event {
            MuxEvent::PoolCreated { config, .. } | MuxEvent::PoolReconfigured { config, .. } => {
                config.options().distance != Distance::Ignored
            }
            _ => false,
        };
        if let (Err(address), Some(client), true) = (&*mux, &self.client, is_used) {
            *mux = Ok(MuxMetrics::new(client.name_of(address), Arc::clone(client)));
        }
        if let Ok(mux) = mux {
            mux.on_event(now, event);
        }
    }

    /// The metrics of operations; `None` without a recorder.
    #[inline]
    pub(crate) fn client(&self) -> Option<&ClientMetrics> {
        self.client.as_deref()
    }
}

impl Publish for Metrics {
    #[inline]
    fn kinds(&self) -> EventKinds {
        match (&self.of_server, &self.client) {
            (OfServer::Pool(_), _) => EventKinds::POOLS | EventKinds::CHECK_OUTS,
            (OfServer::Mux(_), _) => EventKinds::MUX,
            (OfServer::None, Some(_)) => EventKinds::TOPOLOGY | EventKinds::HEARTBEATS | EventKinds::SELECTION_WAITS,
            (OfServer::None, None) => EventKinds::NONE,
        }
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is measured")]
    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let _ = contain(|| match (&self.of_server, event) {
            (OfServer::Pool(pool), EventRef::Pool(event)) => lock(pool).on_event(now, event),
            (OfServer::Mux(mux), EventRef::Mux(event)) => self.on_mux_event(&mut lock(mux), now, event),
            (OfServer::None, event) => {
                let Some(client) = &self.client else { return };
                match event {
                    EventRef::Sdam(event) => client.on_sdam(event),
                    EventRef::Heartbeat(event) => client.on_heartbeat(event, context.address.unwrap_or_default()),
                    EventRef::Selection(event) => client.on_selection(event),
                    _ => {}
                }
            }
            _ => {}
        });
    }

    fn of_server(&self, address: &str) -> Self {
        let of_server = match (self.system, &self.client) {
            (System::Mongodb, Some(client)) => contain(|| PoolMetrics::new(client.add_server(address)))
                .map(|pool| OfServer::Pool(Arc::new(Mutex::new(pool)))),
            (System::Cassandra, Some(_)) => Some(OfServer::Mux(Arc::new(Mutex::new(Err(Box::from(address)))))),
            (System::Generic, _) if has_recorder() => contain(|| PoolMetrics::new(address).with_liveness())
                .map(|pool| OfServer::Pool(Arc::new(Mutex::new(pool)))),
            _ => None,
        };
        Self { client: self.client.clone(), system: self.system, of_server: of_server.unwrap_or_default() }
    }
}
