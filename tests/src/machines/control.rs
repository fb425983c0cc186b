//! The pools of a control machine, as its host keeps them.

use alloc::collections::BTreeMap;
use poolhouse_core::control::{Control, ControlAction};
use poolhouse_core::topology::{Memory, PoolCommand, ServerError, TopologyType};
use poolhouse_core::{Cause, ServerId, ServerType};

/// Whether the pool of each server is ready, according to the actions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pools(BTreeMap<ServerId, bool>);

impl Pools {
    /// The servers with a pool.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.keys().copied()
    }

    /// Whether a server has a pool.
    #[must_use]
    pub fn contains(&self, server: ServerId) -> bool {
        self.0.contains_key(&server)
    }

    /// Clears the pool of a server after an error of an application.
    pub fn clear(&mut self, server: ServerId) {
        if let Some(is_ready) = self.0.get_mut(&server) {
            *is_ready = false;
        }
    }

    /// Carries out all owed actions, and returns them.
    ///
    /// - `is_prompt`: all actions were carried out after each earlier call.
    pub fn drain<M: Memory>(&mut self, control: &mut Control<M>, is_prompt: bool) -> Vec<ControlAction> {
        let mut done = Vec::new();
        while let Some(action) = control.poll_action() {
            assert_ne!(done.last(), Some(&ControlAction::WakeSelectors), "S8: selectors wake last");
            self.apply(control, action, is_prompt);
            done.push(action);
        }
        control.assert_invariants();
        self.check(control);
        done
    }

    /// Carries out one action.
    pub fn apply<M: Memory>(&mut self, control: &Control<M>, action: ControlAction, is_prompt: bool) {
        match action {
            ControlAction::ServerAdded(server) => {
                assert_eq!(self.0.insert(server, false), None, "a server is added twice");
            }
            ControlAction::ServerRemoved(server) => {
                assert!(self.0.remove(&server).is_some(), "a server was removed that was not a member");
                assert!(control.is_ended(server), "the monitor of a removed server has ended");
            }
            ControlAction::Pool(server, command) => {
                let server_type = control.topology().server(server).expect("commands are for members").server_type();
                let is_ready = self.0.get_mut(&server).expect("the server was added before");
                match command {
                    PoolCommand::Ready => {
                        let suits = suits(control, server_type) || !is_prompt && server_type.is_known();
                        assert!(suits, "S8: a pool of type {server_type} must not be marked ready");
                    }
                    PoolCommand::Clear { interrupt_in_use_connections, cause } => {
                        assert!(!is_prompt || !server_type.is_known(), "S7: the description must change first");
                        assert!(
                            !interrupt_in_use_connections || cause == Cause::NetworkTimeout,
                            "S7: only a timeout interrupts, not {cause:?}"
                        );
                    }
                }
                *is_ready = command == PoolCommand::Ready;
            }
            ControlAction::WakeSelectors => {}
        }
    }

    /// Descriptions and pools must agree when all actions are carried out.
    fn check<M: Memory>(&self, control: &Control<M>) {
        let topology = control.topology();
        assert_eq!(topology.server_count() as usize, self.0.len(), "a pool for each server");
        for server in topology.servers() {
            let is_ready = self.0[&server.server()];
            assert!(is_ready || !suits(control, server.server_type()), "S8: {server} is known, its pool not ready");
            let failed = matches!(server.error(), Some(ServerError::Failed(_)));
            assert!(!(failed && is_ready), "S7: {server} failed, but its pool is ready");
        }
    }
}

/// Whether the pool of a server of this type must be ready.
fn suits<M: Memory>(control: &Control<M>, server_type: ServerType) -> bool {
    let is_single = control.topology().description().topology_type() == TopologyType::Single;
    server_type.is_data_bearing() || is_single && server_type.is_known()
}
