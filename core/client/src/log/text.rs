//! The unstructured messages: one sentence for each. An unknown value is left out,
//! together with the words that introduce it.

use super::{Extra, Failure, OneLine, UNKNOWN, append, closed_reason, failed_error, failed_reason, millis};
use core::fmt;
use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::SdamEvent;

/// A message of a pool.
pub(super) struct Pool<'a>(pub(super) &'a PoolEvent, pub(super) &'a Extra<'a>);

/// A message of a pool of a host of Cassandra.
pub(super) struct Mux<'a>(pub(super) &'a MuxEvent, pub(super) &'a Extra<'a>);

/// A warning of a slow request of Cassandra.
pub(super) struct SlowRequest<'a> {
    pub(super) name: &'a str,
    pub(super) address: Option<&'a str>,
    /// In milliseconds.
    pub(super) duration: f64,
    pub(super) failure: Option<OneLine<'a>>,
}

/// A message of a heartbeat.
pub(super) struct Heartbeat<'a>(pub(super) &'a MonitorEvent, pub(super) &'a Extra<'a>);

/// A message of a topology.
pub(super) struct Sdam<'a>(pub(super) &'a SdamEvent<'a>);

impl Extra<'_> {
    fn address(&self) -> &str {
        self.address.unwrap_or(UNKNOWN)
    }
}

impl fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.1.address();
        match self.0 {
            PoolEvent::PoolCreated { options, .. } => {
                write!(f, "Connection pool created for {address}")?;
                for (place, (name, value)) in options.non_default().enumerate() {
                    f.write_str(if place == 0 { " using options " } else { ", " })?;
                    write!(f, "{name}={value}")?;
                }
                Ok(())
            }
            PoolEvent::PoolReady { .. } => write!(f, "Connection pool ready for {address}"),
            PoolEvent::PoolCleared { service_id, .. } => {
                write!(f, "Connection pool for {address} cleared")?;
                service_id.map_or(Ok(()), |id| write!(f, " for serviceId {id}"))
            }
            PoolEvent::PoolClosed { .. } => write!(f, "Connection pool closed for {address}"),
            PoolEvent::ConnectionCreated { conn, .. } => {
                write!(f, "Connection created: address={address}, driver-generated ID={}", conn.connection_id())
            }
            PoolEvent::ConnectionReady { conn, duration, .. } => write!(
                f,
                "Connection ready: address={address}, driver-generated ID={}, established in={} ms",
                conn.connection_id(),
                millis(*duration)
            ),
            PoolEvent::ConnectionClosed { conn, reason, cause, .. } => {
                let (id, reason) = (conn.connection_id(), closed_reason(*reason));
                write!(f, "Connection closed: address={address}, driver-generated ID={id}. Reason: {reason}.")?;
                cause.map_or(Ok(()), |cause| write!(f, " Error: {cause}"))
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => {
                write!(f, "Checkout started for connection to {address}")
            }
            PoolEvent::ConnectionCheckOutFailed { reason, error, duration, .. } => {
                write!(f, "Checkout failed for connection to {address}. Reason: {}.", failed_reason(*reason))?;
                if let Some(error) = failed_error(*reason, error) {
                    write!(f, " Error: {error}.")?;
                }
                write!(f, " Duration: {} ms", millis(*duration))
            }
            PoolEvent::ConnectionCheckedOut { conn, duration, .. } => write!(
                f,
                "Connection checked out: address={address}, driver-generated ID={}, duration={} ms",
                conn.connection_id(),
                millis(*duration)
            ),
            PoolEvent::ConnectionCheckedIn { conn, .. } => {
                write!(f, "Connection checked in: address={address}, driver-generated ID={}", conn.connection_id())
            }
            _ => self.0.fmt(f),
        }
    }
}

impl fmt::Display for Mux<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(event, extra) = self;
        write!(f, "{}: {event}", extra.address())?;
        extra.reason.map_or(Ok(()), |reason| append(reason, f))
    }
}

impl fmt::Display for SlowRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, address, duration, failure } = self;
        write!(f, "Slow request {name}")?;
        address.map_or(Ok(()), |address| write!(f, " of {address}"))?;
        write!(f, ": {duration} ms")?;
        failure.as_ref().map_or(Ok(()), |failure| write!(f, ": {failure}"))
    }
}

impl fmt::Display for Heartbeat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(event, extra) = self;
        let awaited = event.awaited();
        match event {
            MonitorEvent::HeartbeatStarted { id, .. } => {
                f.write_str("Heartbeat started")?;
                on_connection(f, id, extra)?;
                write!(f, ". Awaited: {awaited}")
            }
            MonitorEvent::HeartbeatSucceeded { id, duration, .. } => {
                write!(f, "Heartbeat succeeded in {} ms", millis(*duration))?;
                on_connection(f, id, extra)?;
                write!(f, ". Awaited: {awaited}")?;
                extra.reply.as_ref().map_or(Ok(()), |reply| write!(f, ". Reply: {reply}"))
            }
            MonitorEvent::HeartbeatFailed { id, duration, cause, .. } => {
                write!(f, "Heartbeat failed in {} ms", millis(*duration))?;
                on_connection(f, id, extra)?;
                write!(f, ". Awaited: {awaited}. Failure: {}", Failure(*cause, extra.reason))
            }
            _ => event.fmt(f),
        }
    }
}

fn on_connection(f: &mut fmt::Formatter<'_>, id: &HeartbeatId, extra: &Extra<'_>) -> fmt::Result {
    let address = extra.address();
    write!(f, " for {address} on connection with driver-generated ID {}", id.connection)?;
    if let Some(id) = id.server_connection {
        write!(f, " and server-generated ID {id}")?;
    }
    extra.topology.map_or(Ok(()), |topology| write!(f, " in topology with ID {}", topology.get()))
}

impl fmt::Display for Sdam<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.topology().get();
        match self.0 {
            SdamEvent::TopologyOpening { .. } => write!(f, "Starting monitoring for topology with ID {id}"),
            SdamEvent::TopologyDescriptionChanged { previous, new, .. } => write!(
                f,
                "Description changed for topology with ID {id}. Previous description: {previous}. New description: {new}"
            ),
            SdamEvent::ServerOpening { address, .. } => {
                write!(f, "Starting monitoring for server {address} in topology with ID {id}")
            }
            SdamEvent::ServerClosed { address, .. } => {
                write!(f, "Stopped monitoring for server {address} in topology with ID {id}")
            }
            SdamEvent::TopologyClosed { .. } => write!(f, "Stopped monitoring for topology with ID {id}"),
            SdamEvent::NoServers { .. } => write!(f, "The topology with ID {id} has no servers"),
            SdamEvent::ServerDescriptionChanged { .. } => self.0.fmt(f),
            _ => self.0.fmt(f),
        }
    }
}
