//! Consequences of an application's error.

use super::book::{Judged, Oracle, Scene};
use super::{Fault, FaultKind};
use poolhouse_core::ServerId;
use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{TopologyType, Verdict};

/// Codes of servers that are not a primary, or are recovering (SDAM, "Error handling").
const STATE_CHANGES: [i32; 8] = [10_107, 13_435, 10_058, 11_600, 11_602, 13_436, 189, 91];
/// The codes of these that mean a server shuts down.
const SHUTDOWNS: [i32; 2] = [11_600, 91];

impl Oracle {
    pub(super) fn verdict(&mut self, id: ServerId, fault: &Fault, verdict: &Verdict, scene: &mut Scene<'_>) -> Judged {
        let is_nothing = *verdict == Verdict::default() && scene.reported == 0;
        if fault.stale {
            return scene.checks.check("S10", is_nothing, || format!("a stale error: {verdict:?}"));
        }
        if let (Some(server), Some(Clear::All { .. })) = (self.servers.get_mut(&id), verdict.clear) {
            // The host clears the pool in the same step.
            server.ready = false;
        }
        if scene.was.is_none() || self.topology == TopologyType::LoadBalanced {
            return scene
                .checks
                .check("S12", !verdict.marked_unknown, || format!("an error of a removed server: {verdict:?}"));
        }
        let is_unknown = self.servers.get(&id).is_some_and(|server| !server.looks.known);
        let id_of_kind = if matches!(fault.kind, FaultKind::Command(..)) { "S11" } else { "S12" };
        scene
            .checks
            .check(id_of_kind, is_unknown || !verdict.marked_unknown, || format!("{id:?} is known: {verdict:?}"))?;
        let interrupts = matches!(verdict.clear, Some(Clear::All { interrupt_in_use_connections: true }));
        scene.checks.check(id_of_kind, !interrupts, || format!("{verdict:?} interrupts"))?;
        if verdict.marked_unknown && fault.before {
            let is_beating = self.servers.get(&id).is_some_and(|server| server.beat.is_some());
            let is_cancelled = verdict.cancel_check && !(scene.was_beating && is_beating);
            scene.checks.check(id_of_kind, is_cancelled, || {
                format!("a handshake failed, but the check was not cancelled: {verdict:?}")
            })?;
        }
        match fault.kind {
            FaultKind::Timeout if !fault.before => {
                scene.checks.check("S12", is_nothing, || format!("a timeout of an operation: {verdict:?}"))
            }
            FaultKind::Network if fault.overloaded => {
                scene.checks.check("S12", is_nothing, || format!("a server that is overloaded: {verdict:?}"))
            }
            FaultKind::Network => {
                let holds = verdict.marked_unknown && verdict.clear.is_some() && verdict.cancel_check;
                scene.checks.check("S12", holds, || format!("a network error: {verdict:?}"))?;
                let is_beating = self.servers.get(&id).is_some_and(|server| server.beat.is_some());
                scene.checks.check("S12", !(scene.was_beating && is_beating), || "the check was not cancelled".into())
            }
            FaultKind::Command(Some(code), version)
                if STATE_CHANGES.contains(&code) && !(fault.before && fault.overloaded) =>
            {
                let known = scene.was.and_then(|was| was.version);
                let is_old = match (version, known) {
                    (Some(version), Some(known)) => {
                        version.process_id == known.process_id && version.counter <= known.counter
                    }
                    _ => false,
                };
                if is_old {
                    return scene.checks.check("S11", is_nothing, || format!("{version:?} is known: {verdict:?}"));
                }
                let clears = fault.before || SHUTDOWNS.contains(&code);
                let holds = verdict.marked_unknown && verdict.request_check && verdict.clear.is_some() == clears;
                scene.checks.check("S11", holds, || format!("code {code}: {verdict:?}"))
            }
            FaultKind::Timeout | FaultKind::Command(..) | FaultKind::Other => Ok(()),
        }
    }
}
