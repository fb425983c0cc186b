//! The owner of each stream id, from the view of the host and of the peers.

use alloc::collections::{BTreeMap, BTreeSet};

/// State of a request that has a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It has not been written to the peer.
    Unwritten(u64),
    /// It has been written to the peer.
    Written(u64),
    /// The peer has answered, and the host has not taken the reply.
    Answered(u64),
    /// It was abandoned, and the peer has not answered.
    GivenUp(u64),
}

/// Number of requests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) answered: u64,
    pub(super) given_up: u64,
    /// Ended with their connection.
    pub(super) failed: u64,
}

/// The states of stream ids, by connection number and id.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<(u64, u16), Entry>,
    /// Requests that have an id and have not ended.
    alive: BTreeSet<u64>,
    /// Used ids that are free now, the newest last.
    freed: Vec<(u64, u16)>,
    pub(super) ends: Ends,
    next: u64,
}

impl Book {
    pub(super) fn entry(&self, conn: u64, id: u16) -> Option<Entry> {
        self.entries.get(&(conn, id)).copied()
    }

    pub(super) fn alive(&self) -> usize {
        self.alive.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.alive.is_empty()
    }

    /// Ids with a state that passes the test.
    pub(super) fn all(&self, test: impl Fn(Entry) -> bool) -> Vec<(u64, u16)> {
        self.entries.iter().filter(|(_, entry)| test(**entry)).map(|(at, _)| *at).collect()
    }

    /// Used ids that are free now.
    pub(super) fn freed(&self) -> Vec<(u64, u16)> {
        self.freed.iter().copied().filter(|at| !self.entries.contains_key(at)).collect()
    }

    /// A request was granted an id.
    pub(super) fn acquired(&mut self, conn: u64, id: u16) {
        let request = self.next;
        self.next += 1;
        let before = self.entries.insert((conn, id), Entry::Unwritten(request));
        assert_eq!(before, None, "stream {id} of connection {conn} is granted twice");
        self.alive.insert(request);
    }

    /// A request was written.
    pub(super) fn written(&mut self, conn: u64, id: u16) {
        self.change(conn, id, |entry| match entry {
            Entry::Unwritten(request) => Entry::Written(request),
            Entry::Written(_) | Entry::Answered(_) | Entry::GivenUp(_) => panic!("written as {entry:?}"),
        });
    }

    /// The pool assigns a reply to a request. The request must have been written and be waiting.
    pub(super) fn answered(&mut self, conn: u64, id: u16) {
        let entry = self.entry(conn, id);
        let Some(Entry::Written(request)) = entry else {
            panic!("a reply by stream {id} of connection {conn} reaches {entry:?}");
        };
        self.entries.insert((conn, id), Entry::Answered(request));
        self.end(request);
        self.ends.answered += 1;
    }

    /// A reply has arrived for a request that was not written. The request fails, because the host
    /// closes the connection.
    pub(super) fn refused(&mut self, conn: u64, id: u16) {
        let entry = self.entry(conn, id);
        let Some(Entry::Unwritten(request)) = entry else { panic!("refused as {entry:?}") };
        self.entries.insert((conn, id), Entry::Answered(request));
        self.end(request);
        self.ends.failed += 1;
    }

    /// The pool reports a late reply. Its request must have been abandoned.
    pub(super) fn late(&mut self, conn: u64, id: u16) {
        let entry = self.entries.remove(&(conn, id));
        assert!(matches!(entry, Some(Entry::GivenUp(_))), "a late reply to {entry:?}");
        self.free(conn, id);
    }

    /// The host releases the id.
    pub(super) fn released(&mut self, conn: u64, id: u16) {
        match self.entries.remove(&(conn, id)) {
            // The id has ended with its connection.
            None => {}
            Some(Entry::Answered(_)) => self.free(conn, id),
            Some(Entry::Unwritten(request)) => {
                self.end(request);
                self.ends.given_up += 1;
                self.free(conn, id);
            }
            Some(Entry::Written(request)) => {
                self.end(request);
                self.ends.given_up += 1;
                self.entries.insert((conn, id), Entry::GivenUp(request));
            }
            Some(entry @ Entry::GivenUp(_)) => panic!("{entry:?} is released again"),
        }
    }

    /// A connection was closed, and its requests have ended.
    pub(super) fn closed(&mut self, conn: u64, in_flight: u32) {
        let gone = self.all(|_| true).into_iter().filter(|(known, _)| *known == conn);
        let mut failed = 0;
        for at in gone.collect::<Vec<_>>() {
            if let Some(Entry::Unwritten(request) | Entry::Written(request)) = self.entries.remove(&at) {
                self.end(request);
                failed += 1;
            }
        }
        assert_eq!(failed, in_flight, "requests that fail with connection {conn}");
        self.ends.failed += u64::from(failed);
        self.freed.retain(|(known, _)| *known != conn);
    }

    fn change(&mut self, conn: u64, id: u16, change: impl FnOnce(Entry) -> Entry) {
        let entry = self.entry(conn, id).expect("a stream that is out");
        self.entries.insert((conn, id), change(entry));
    }

    fn end(&mut self, request: u64) {
        assert!(self.alive.remove(&request), "request {request} ends twice");
    }

    fn free(&mut self, conn: u64, id: u16) {
        if self.freed.len() == 16 {
            self.freed.remove(0);
        }
        self.freed.push((conn, id));
    }
}
