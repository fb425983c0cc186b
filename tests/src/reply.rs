//! Hello replies that are built without a message.

use poolhouse_core::TopologyVersion;
use poolhouse_wire::bson::{DocumentWriter, RawArray, RawDocument};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// The part of a reply that a monitor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckReply {
    /// Whether `ok` is 1.
    pub ok: bool,
    /// `code`, for a reply that is not ok; 0 if it has none.
    pub code: i32,
    /// Whether the reply has `helloOk: true`.
    pub hello_ok: bool,
    /// Whether the message has the moreToCome flag.
    pub more_to_come: bool,
    /// `topologyVersion`.
    pub topology_version: Option<TopologyVersion>,
    /// `connectionId`.
    pub server_connection: Option<i64>,
}

impl CheckReply {
    /// `ok: 1` and no other field.
    pub const OK: Self = Self {
        ok: true,
        code: 0,
        hello_ok: false,
        more_to_come: false,
        topology_version: None,
        server_connection: None,
    };

    /// Returns that part of a reply.
    #[must_use]
    pub fn of(reply: &HelloReply<'_>, matched: Matched) -> Self {
        Self {
            ok: reply.ok,
            code: reply.code,
            hello_ok: reply.hello_ok,
            more_to_come: matched == Matched::MoreComes,
            topology_version: reply.topology_version,
            server_connection: reply.connection_id,
        }
    }

    /// Returns a reply with these fields.
    #[must_use]
    pub const fn hello(&self) -> HelloReply<'static> {
        HelloReply {
            ok: self.ok,
            code: self.code,
            hello_ok: self.hello_ok,
            topology_version: self.topology_version,
            connection_id: self.server_connection,
            ..HelloReply::OK
        }
    }

    /// Returns whether another reply follows.
    #[must_use]
    pub const fn matched(&self) -> Matched {
        if self.more_to_come { Matched::MoreComes } else { Matched::Last }
    }
}

/// The encoded lists of a reply.
#[derive(Clone, Debug)]
pub struct Lists {
    hosts: Vec<u8>,
    passives: Vec<u8>,
    arbiters: Vec<u8>,
    tags: Vec<u8>,
}

impl Lists {
    /// Creates `hosts`, and no other list.
    #[must_use]
    pub fn of_hosts(hosts: &[impl AsRef<str>]) -> Self {
        let none: [&str; 0] = [];
        Self::new(hosts, &none, &none, &[] as &[(&str, &str)])
    }

    /// Creates these lists.
    #[must_use]
    pub fn new<H: AsRef<str>, P: AsRef<str>, A: AsRef<str>, N: AsRef<str>, V: AsRef<str>>(
        hosts: &[H],
        passives: &[P],
        arbiters: &[A],
        tags: &[(N, V)],
    ) -> Self {
        Self {
            hosts: document(hosts.iter().map(|host| ("", host.as_ref()))),
            passives: document(passives.iter().map(|host| ("", host.as_ref()))),
            arbiters: document(arbiters.iter().map(|host| ("", host.as_ref()))),
            tags: document(tags.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))),
        }
    }

    /// Returns the reply with these lists in place of its own.
    #[must_use]
    pub fn of<'a>(&'a self, reply: HelloReply<'a>) -> HelloReply<'a> {
        let open = |bytes| RawDocument::new(bytes).expect("it was written");
        let [hosts, passives, arbiters] =
            [&self.hosts, &self.passives, &self.arbiters].map(|bytes| RawArray::from_document(open(bytes)));
        HelloReply { hosts, passives, arbiters, tags: open(&self.tags), ..reply }
    }
}

fn document<'a>(mut texts: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = DocumentWriter::write(&mut bytes, |document| {
        texts.try_for_each(|(key, text)| document.str(key, text).map(drop))
    });
    written.expect("keys without a zero byte");
    bytes
}
