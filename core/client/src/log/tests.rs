//! Every message with every field, as a subscriber receives them.

pub(crate) mod capture;
mod command;
mod connection;
mod deployment;
mod options;
mod selection;
mod silence;
mod topology;

use super::*;
use capture::{Captured, capture};
use poolhouse_core::observe::Within;

fn logs(options: LogOptions) -> Within<'static, Logs> {
    Within::new(Logs::new(options), EventContext::of_server("db.example:27018"))
}

/// Only the messages of the specification, with whole replies.
const MESSAGES: LogOptions =
    LogOptions { deployment: LevelFilter::OFF, heartbeat_replies: true, ..LogOptions::DEFAULT };
const TEXT: LogOptions = LogOptions { style: LogStyle::Text, ..MESSAGES };

/// The id of a connection that a pool wants to establish.
pub(crate) fn connection_id() -> poolhouse_core::pool::ConnId {
    use poolhouse_core::pool::{OnHeap, Pool, PoolConfig, PoolId};
    let now = Instant::ORIGIN;
    let mut pool = Pool::<OnHeap>::new(now, PoolId::new(1), PoolConfig::DEFAULT, &mut ());
    pool.ready(now, &mut ());
    let _waits = pool.check_out(now, None, &mut ()).expect("queued");
    pool.poll_establish().expect("wanted")
}
