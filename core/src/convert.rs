//! From what was decoded to what the machines take: a hello reply for a topology and for a monitor, a failed handshake for a topology.
//!
//! The wire knows no machine and the machines know no wire; whoever drives both calls these.

#[cfg(test)]
mod tests;

use crate::Cause;
use crate::monitor::CheckReply;
use crate::topology::{AppErrorKind, CommandError, HelloInfo, HelloLists, ReplyError};
use crate::wire::handshake::HandshakeError;
use crate::wire::hello::HelloReply;
use crate::wire::message::Matched;

/// The lists of a decoded reply, read in place.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLists<'a>(HelloReply<'a>);

impl HelloLists for ReplyLists<'_> {
    fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.hosts.strings()
    }

    fn passives(&self) -> impl Iterator<Item = &str> {
        self.0.passives.strings()
    }

    fn arbiters(&self) -> impl Iterator<Item = &str> {
        self.0.arbiters.strings()
    }

    fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.tags.iter().flatten().filter_map(|tag| Some((tag.key, tag.value.as_str()?)))
    }
}

/// A good reply as a topology takes it. No allocation.
#[must_use]
pub fn hello_info<'a>(reply: &HelloReply<'a>) -> HelloInfo<'a, ReplyLists<'a>> {
    HelloInfo {
        is_writable_primary: reply.is_writable_primary,
        secondary: reply.secondary,
        arbiter_only: reply.arbiter_only,
        hidden: reply.hidden,
        is_replica_set: reply.is_replica_set,
        is_db_grid: reply.is_db_grid(),
        is_cryptd: reply.is_cryptd,
        set_name: reply.set_name,
        set_version: reply.set_version,
        election_id: reply.election_id,
        me: reply.me,
        primary: reply.primary,
        min_wire_version: reply.min_wire_version,
        max_wire_version: reply.max_wire_version,
        last_write_date_ms: reply.last_write.map(|write| write.date_ms),
        logical_session_timeout_minutes: reply.logical_session_timeout_minutes.map(i64::from),
        topology_version: reply.topology_version,
        lists: ReplyLists(*reply),
    }
}

/// A reply as a monitor takes it.
///
/// - `code`: the error's, 0 without one. `matched`: whether another reply follows.
#[must_use]
pub const fn check_reply(reply: &HelloReply<'_>, code: i32, matched: Matched) -> CheckReply {
    CheckReply {
        ok: reply.ok,
        code,
        hello_ok: reply.hello_ok,
        more_to_come: matches!(matched, Matched::MoreComes),
        topology_version: reply.topology_version,
        server_connection: reply.connection_id,
    }
}

/// What the failure of an establishment is to a topology (SDAM, "Error handling"): a socket's, a server's answer, or something that tells nothing of the server.
#[must_use]
pub fn establish_error(error: &HandshakeError) -> AppErrorKind<'static> {
    if error.cause == Cause::Network {
        AppErrorKind::Network
    } else if error.cause == Cause::NetworkTimeout {
        AppErrorKind::NetworkTimeout
    } else if let Cause::Command { code } = error.cause {
        let command = Some(ReplyError { code: Some(code), message: "" });
        let topology_version = error.topology_version;
        AppErrorKind::Command(CommandError { command, write_concern: None, topology_version })
    } else {
        AppErrorKind::Other(error.cause)
    }
}
