//! Parts of hello replies, for tests.

use alloc::vec::Vec;
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, RawArray, RawDocument};
use poolhouse_wire::hello::HelloReply;

type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

/// The lists of a reply, for tests that make replies without bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lists<'a> {
    pub(crate) hosts: &'a [&'a str],
    pub(crate) passives: &'a [&'a str],
    pub(crate) arbiters: &'a [&'a str],
    pub(crate) tags: &'a [(&'a str, &'a str)],
}

impl Lists<'_> {
    /// The reply with these lists instead of its own.
    pub(crate) fn of<'r>(self, reply: HelloReply<'r>) -> HelloReply<'r> {
        let [hosts, passives, arbiters] = [self.hosts, self.passives, self.arbiters].map(texts);
        HelloReply { hosts, passives, arbiters, tags: pairs(self.tags), ..reply }
    }
}

/// An array of texts. Its bytes are never freed.
pub(crate) fn texts(texts: &[&str]) -> RawArray<'static> {
    RawArray::from_document(leaked(&|d| texts.iter().try_for_each(|text| d.str("", text).map(drop))))
}

/// A document of texts. Its bytes are never freed.
pub(crate) fn pairs(pairs: &[(&str, &str)]) -> RawDocument<'static> {
    leaked(&|d| pairs.iter().try_for_each(|(key, value)| d.str(key, value).map(drop)))
}

fn leaked(write: Write<'_>) -> RawDocument<'static> {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, write).expect("room");
    RawDocument::new(sink.leak()).expect("a document")
}
