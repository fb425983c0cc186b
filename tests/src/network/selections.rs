//! The events of server selection: each selection has one start and one end, each wait too, and only the
//! first wait of an operation is new (P59).

use crate::kind::{Counters, Kind};
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::ServerType;
use poolhouse_core::topology::{TopologyDescription, TopologyType};
use poolhouse_driver::{CommandEvent, SelectionEvent, SelectionStage};

/// The selector of an operation that needs a server which accepts writes.
const WRITE: &str = "write";

/// The selections of an operation that has an id.
#[derive(Debug, Default)]
struct Named {
    is_open: bool,
    is_waiting: bool,
    /// After a wait: whether its selection must succeed.
    must_succeed: Option<bool>,
    has_waited: bool,
    has_failed: bool,
    /// The name and the selector, which all of its events have.
    what: (String, String),
    /// The server that was selected last.
    server: Option<String>,
}

/// The selections of a client.
#[derive(Debug, Default)]
pub(super) struct Selections {
    named: BTreeMap<i64, Named>,
    /// Selections of check-outs and warm-ups, which have no id: those that have not ended, the number that
    /// may still be reported to wait, and those that wait. Each belongs to another operation.
    open: u64,
    may_wait: u64,
    waiting: u64,
}

impl Selections {
    /// - `limit`: `serverSelectionTimeoutMS`.
    pub(super) fn on_event(&mut self, event: &SelectionEvent<'_>, limit: Duration, counters: &mut Counters) {
        counters.checks.add("P59");
        counters.count(kind_of(event.stage));
        check_topology(event, limit);
        match event.operation_id {
            Some(id) => self.named.entry(id).or_default().on_event(event),
            None => self.on_nameless(event),
        }
    }

    fn on_nameless(&mut self, event: &SelectionEvent<'_>) {
        assert_eq!(event.operation, None, "P59: an operation with a name has no id: {event}");
        match event.stage {
            SelectionStage::Started => {
                self.open += 1;
                self.may_wait += 1;
            }
            SelectionStage::Waiting { again, .. } => {
                assert!(self.open > 0 && self.may_wait > 0, "P59: more waits than selections: {event}");
                assert!(!again, "P59: a selection without a name is one of several: {event}");
                self.may_wait -= 1;
                self.waiting += 1;
            }
            SelectionStage::Waited { .. } => {
                assert!(self.waiting > 0, "P59: a wait ends twice: {event}");
                self.waiting -= 1;
            }
            SelectionStage::Succeeded { .. } | SelectionStage::Failed { .. } => {
                assert!(self.open > 0, "P59: a selection ends twice: {event}");
                self.open -= 1;
                self.may_wait = self.may_wait.min(self.open);
            }
        }
    }

    /// A command is sent. One on a connection that is checked out has no selection.
    pub(super) fn on_command(&self, event: &CommandEvent<'_>) {
        let Some(known) = self.named.get(&event.operation_id) else { return };
        assert!(!known.is_open, "P59: a command is sent during the selection of its server: {event}");
        let is_right = known.server.as_deref() == Some(event.address);
        assert!(is_right, "P59: a command is sent to another server than {:?}: {event}", known.server);
    }

    /// Checks that all selections have ended.
    pub(super) fn assert_over(&self) {
        let open: Vec<_> = self.named.values().filter(|named| named.is_open).collect();
        assert!(open.is_empty(), "P59: selections have a start and no end: {open:?}");
        assert_eq!(self.open, 0, "P59: selections of check-outs have a start and no end");
        let waiting: Vec<_> = self.named.values().filter(|named| named.is_waiting).collect();
        assert!(waiting.is_empty() && self.waiting == 0, "P59: waits have no end: {waiting:?}, {}", self.waiting);
    }
}

impl Named {
    fn on_event(&mut self, event: &SelectionEvent<'_>) {
        let what = (event.operation.unwrap_or_default().to_owned(), event.selector.to_owned());
        if self.what.0.is_empty() {
            self.what.clone_from(&what);
        }
        assert_eq!(self.what, what, "P59: the name and the selector of an operation change: {event}");
        match event.stage {
            SelectionStage::Started => {
                assert!(!self.is_open, "P59: an operation has two selections at a time: {event}");
                assert!(!self.has_failed, "P59: an operation continues after a failed selection: {event}");
                self.is_open = true;
            }
            SelectionStage::Waiting { again, .. } => {
                assert!(self.is_open, "P59: an operation waits outside of its selections: {event}");
                let has_waited = core::mem::replace(&mut self.has_waited, true);
                assert_eq!(again, has_waited, "P59: whether an operation has waited before: {event}");
                assert!(!core::mem::replace(&mut self.is_waiting, true), "P59: a wait begins twice: {event}");
            }
            SelectionStage::Waited { is_selected, .. } => {
                self.must_succeed = Some(is_selected);
                assert!(core::mem::take(&mut self.is_waiting), "P59: a wait ends twice: {event}");
            }
            SelectionStage::Succeeded { address } => {
                assert!(!self.is_waiting, "P59: a selection ends before its wait: {event}");
                assert!(core::mem::take(&mut self.is_open), "P59: a selection ends twice: {event}");
                assert_ne!(self.must_succeed.take(), Some(false), "P59: the wait has found no server: {event}");
                self.server = Some(address.to_owned());
            }
            SelectionStage::Failed { .. } => {
                assert_ne!(self.must_succeed.take(), Some(true), "P59: the wait has found a server: {event}");
                assert!(core::mem::take(&mut self.is_open), "P59: a selection ends twice: {event}");
                self.has_failed = true;
            }
        }
    }
}

const fn kind_of(stage: SelectionStage<'_>) -> Kind {
    match stage {
        SelectionStage::Started => Kind::SelectionStarted,
        SelectionStage::Waiting { .. } => Kind::SelectionWaits,
        SelectionStage::Waited { .. } => Kind::SelectionWaited,
        SelectionStage::Succeeded { .. } => Kind::Selected,
        SelectionStage::Failed { error: Some(_) } => Kind::SelectionFailed,
        SelectionStage::Failed { error: None } => Kind::SelectionDropped,
    }
}

/// Checks the outcome of a selection by the topology of its event.
fn check_topology(event: &SelectionEvent<'_>, limit: Duration) {
    match event.stage {
        SelectionStage::Started | SelectionStage::Waited { .. } | SelectionStage::Failed { .. } => {}
        SelectionStage::Waiting { remaining, .. } => {
            assert!(remaining.is_some_and(|remaining| remaining <= limit), "P59: the remaining time of {event}");
            let is_needless = event.selector == WRITE && writable(event.topology).next().is_some();
            assert!(!is_needless, "P59: a write waits although it has a server: {event}");
        }
        SelectionStage::Succeeded { address } => {
            let is_right = if event.selector == WRITE {
                writable(event.topology).any(|server| server == address)
            } else {
                let mut servers = event.topology.servers();
                servers.any(|server| server.address() == address && server.server_type().is_known())
            };
            assert!(is_right, "P59: the server is not suitable: {event}");
        }
    }
}

/// The addresses of the servers that accept writes. A direct connection is used for all commands.
fn writable(topology: TopologyDescription<'_>) -> impl Iterator<Item = &str> {
    let is_direct = topology.topology_type() == TopologyType::Single;
    let accepts = move |server_type: ServerType| match server_type {
        ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos => true,
        other => is_direct && other.is_known(),
    };
    topology.servers().filter(move |server| accepts(server.server_type())).map(|server| server.address())
}
