//! Who has which stream id, as the host and the peers of a pool see it.

use alloc::collections::{BTreeMap, BTreeSet};

/// How a request stands that has a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Its id was not written to the peer yet.
    Unwritten(u64),
    /// The peer has it.
    Written(u64),
    /// The peer has answered, the host has not taken it yet.
    Answered(u64),
    /// Nobody waits any more, and the peer has not answered.
    GivenUp(u64),
}

/// How many requests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) answered: u64,
    pub(super) given_up: u64,
    /// With their connection.
    pub(super) failed: u64,
}

/// Stream ids by number of connection and id.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<(u64, u16), Entry>,
    /// Requests that have an id and no end yet.
    alive: BTreeSet<u64>,
    /// Ids that were used and are free, the newest last.
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

    /// Ids of which one can say this.
    pub(super) fn all(&self, test: impl Fn(Entry) -> bool) -> Vec<(u64, u16)> {
        self.entries.iter().filter(|(_, entry)| test(**entry)).map(|(at, _)| *at).collect()
    }

    /// Ids that were used and are free.
    pub(super) fn freed(&self) -> Vec<(u64, u16)> {
        self.freed.iter().copied().filter(|at| !self.entries.contains_key(at)).collect()
    }

    /// A request has an id.
    pub(super) fn acquired(&mut self, conn: u64, id: u16) {
        let request = self.next;
        self.next += 1;
        let before = self.entries.insert((conn, id), Entry::Unwritten(request));
        assert_eq!(before, None, "stream {id} of connection {conn} is given out twice");
        self.alive.insert(request);
    }

    /// It is written.
    pub(super) fn written(&mut self, conn: u64, id: u16) {
        self.change(conn, id, |entry| match entry {
            Entry::Unwritten(request) => Entry::Written(request),
            Entry::Written(_) | Entry::Answered(_) | Entry::GivenUp(_) => panic!("written as {entry:?}"),
        });
    }

    /// The pool says that a reply is a request's: it must be one that was written, and waits.
    pub(super) fn answered(&mut self, conn: u64, id: u16) {
        let entry = self.entry(conn, id);
        let Some(Entry::Written(request)) = entry else {
            panic!("a reply by stream {id} of connection {conn} reaches {entry:?}");
        };
        self.entries.insert((conn, id), Entry::Answered(request));
        self.end(request);
        self.ends.answered += 1;
    }

    /// A reply came by the id of a request that was not written: the request has failed, for its connection is not to be trusted.
    pub(super) fn refused(&mut self, conn: u64, id: u16) {
        let entry = self.entry(conn, id);
        let Some(Entry::Unwritten(request)) = entry else { panic!("refused as {entry:?}") };
        self.entries.insert((conn, id), Entry::Answered(request));
        self.end(request);
        self.ends.failed += 1;
    }

    /// The pool says that a reply is late: it must be that of a request that was given up.
    pub(super) fn late(&mut self, conn: u64, id: u16) {
        let entry = self.entries.remove(&(conn, id));
        assert!(matches!(entry, Some(Entry::GivenUp(_))), "a late reply to {entry:?}");
        self.free(conn, id);
    }

    /// The host gives the id back.
    pub(super) fn released(&mut self, conn: u64, id: u16) {
        match self.entries.remove(&(conn, id)) {
            // With its connection it is gone.
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

    /// A connection is gone, and with it the requests on it.
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
