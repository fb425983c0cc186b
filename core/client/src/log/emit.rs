//! The structured messages: one call site for each, with the fields that it may have.
//!
//! A field of an `Option` that is `None` is not recorded.

use super::{
    CONNECTION, Extra, Failure, Shown, TOPOLOGY, closed_reason, failed_error, failed_reason, host_and_port,
    host_and_port_or, millis,
};
use crate::mux::PORT_DEFAULT;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::pool::{PoolEvent, PoolOptions};
use poolhouse_core::topology::SdamEvent;

macro_rules! connection {
    ($message:literal, $extra:expr $(, $name:literal = $value:expr)* $(,)?) => {{
        let (host, port, name) = $extra.names();
        tracing::debug!(
            target: CONNECTION,
            message = $message,
            "serverHost" = host,
            "serverPort" = port,
            "poolName" = name
            $(, $name = $value)*
        )
    }};
}

macro_rules! heartbeat {
    ($message:literal, $extra:expr, $id:expr, $awaited:expr $(, $name:literal = $value:expr)* $(,)?) => {{
        let (host, port) = host_and_port($extra.address);
        tracing::debug!(
            target: TOPOLOGY,
            message = $message,
            "topologyId" = $extra.topology.map(|topology| topology.get()),
            "serverHost" = host,
            "serverPort" = port,
            "driverConnectionId" = $id.connection,
            "serverConnectionId" = $id.server_connection,
            "awaited" = $awaited
            $(, $name = $value)*
        )
    }};
}

pub(super) fn pool(event: &PoolEvent, extra: &Extra<'_>) {
    match event {
        PoolEvent::PoolCreated { options, .. } => {
            let of = |name| stated(options, name);
            connection!(
                "Connection pool created",
                extra,
                "maxIdleTimeMS" = of("maxIdleTimeMS"),
                "minPoolSize" = of("minPoolSize"),
                "maxPoolSize" = of("maxPoolSize"),
                "maxConnecting" = of("maxConnecting"),
                "waitQueueTimeoutMS" = of("waitQueueTimeoutMS"),
            );
        }
        PoolEvent::PoolReady { .. } => connection!("Connection pool ready", extra),
        PoolEvent::PoolCleared { service_id, .. } => {
            connection!("Connection pool cleared", extra, "serviceId" = service_id.map(display));
        }
        PoolEvent::PoolClosed { .. } => connection!("Connection pool closed", extra),
        PoolEvent::ConnectionCreated { conn, .. } => {
            connection!("Connection created", extra, "driverConnectionId" = conn.connection_id().get());
        }
        PoolEvent::ConnectionReady { conn, duration, .. } => connection!(
            "Connection ready",
            extra,
            "driverConnectionId" = conn.connection_id().get(),
            "durationMS" = millis(*duration),
        ),
        PoolEvent::ConnectionClosed { conn, reason, cause, .. } => connection!(
            "Connection closed",
            extra,
            "driverConnectionId" = conn.connection_id().get(),
            "reason" = closed_reason(*reason),
            "error" = cause.map(display),
        ),
        PoolEvent::ConnectionCheckOutStarted { .. } => connection!("Connection checkout started", extra),
        PoolEvent::ConnectionCheckOutFailed { reason, error, duration, .. } => connection!(
            "Connection checkout failed",
            extra,
            "reason" = failed_reason(*reason),
            "error" = failed_error(*reason, error).map(display),
            "durationMS" = millis(*duration),
        ),
        PoolEvent::ConnectionCheckedOut { conn, duration, .. } => connection!(
            "Connection checked out",
            extra,
            "driverConnectionId" = conn.connection_id().get(),
            "durationMS" = millis(*duration),
        ),
        PoolEvent::ConnectionCheckedIn { conn, .. } => {
            connection!("Connection checked in", extra, "driverConnectionId" = conn.connection_id().get());
        }
        _ => {}
    }
}

/// The value of an option, if it is not the default.
fn stated(options: &PoolOptions, name: &str) -> Option<u64> {
    options.non_default().find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// An event of a pool of a host of Cassandra. No specification defines its message.
pub(super) fn mux(event: &MuxEvent, extra: &Extra<'_>) {
    let (host, port) = host_and_port_or(extra.address, PORT_DEFAULT);
    let error = extra.reason.filter(|reason| !reason.is_none()).map(|reason| tracing::field::display(Shown(reason)));
    let message = format_args!("{event}");
    tracing::debug!(target: CONNECTION, message, "serverHost" = host, "serverPort" = port, "error" = error);
}

pub(super) fn heartbeat(event: &MonitorEvent, extra: &Extra<'_>) {
    match event {
        MonitorEvent::HeartbeatStarted { id, awaited } => heartbeat!("Server heartbeat started", extra, id, *awaited),
        MonitorEvent::HeartbeatSucceeded { id, awaited, duration } => heartbeat!(
            "Server heartbeat succeeded",
            extra,
            id,
            *awaited,
            "durationMS" = millis(*duration),
            "reply" = extra.reply.as_ref().map(display),
        ),
        MonitorEvent::HeartbeatFailed { id, awaited, duration, cause } => heartbeat!(
            "Server heartbeat failed",
            extra,
            id,
            *awaited,
            "durationMS" = millis(*duration),
            "failure" = display(Failure(*cause, extra.reason)),
        ),
        _ => {}
    }
}

pub(super) fn sdam(event: &SdamEvent<'_>) {
    let id = event.topology().get();
    match event {
        SdamEvent::TopologyOpening { .. } => {
            tracing::debug!(target: TOPOLOGY, message = "Starting topology monitoring", "topologyId" = id);
        }
        SdamEvent::TopologyDescriptionChanged { previous, new, .. } => tracing::debug!(
            target: TOPOLOGY,
            message = "Topology description changed",
            "topologyId" = id,
            "previousDescription" = display(previous),
            "newDescription" = display(new)
        ),
        SdamEvent::ServerOpening { address, .. } => {
            let (host, port) = host_and_port(Some(address));
            tracing::debug!(
                target: TOPOLOGY,
                message = "Starting server monitoring",
                "topologyId" = id,
                "serverHost" = host,
                "serverPort" = port
            );
        }
        SdamEvent::ServerClosed { address, .. } => {
            let (host, port) = host_and_port(Some(address));
            tracing::debug!(
                target: TOPOLOGY,
                message = "Stopped server monitoring",
                "topologyId" = id,
                "serverHost" = host,
                "serverPort" = port
            );
        }
        SdamEvent::TopologyClosed { .. } => {
            tracing::debug!(target: TOPOLOGY, message = "Stopped topology monitoring", "topologyId" = id);
        }
        SdamEvent::NoServers { .. } => {
            tracing::warn!(target: TOPOLOGY, message = "The topology has no servers", "topologyId" = id);
        }
        SdamEvent::ServerDescriptionChanged { .. } => {}
        _ => {}
    }
}
