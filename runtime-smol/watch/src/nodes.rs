//! The fake Cassandra nodes, and the faults that the user causes.

use core::time::Duration;
use std::io;

use poolhouse_fake::cql::{Act, CqlServer, CqlServerOptions, Rule};

use crate::state::DemoState;

/// The time until the nodes answer.
const ANSWER_TIME: Duration = Duration::from_millis(30);

/// Three nodes. One can be frozen and another killed at a time.
pub(crate) struct Nodes {
    frozen: (CqlServer, bool),
    killed: (CqlServer, bool),
    third: CqlServer,
}

impl Nodes {
    /// A statement that they answer.
    pub(crate) const STATEMENT: &str = "echo hello";

    /// # Errors
    /// Those of the sockets.
    pub(crate) fn start() -> io::Result<Self> {
        let start = || {
            let server = CqlServer::start(CqlServerOptions::fast())?;
            server.add(Rule::statements(Act::Delay(ANSWER_TIME)));
            Ok::<_, io::Error>(server)
        };
        Ok(Self { frozen: (start()?, false), killed: (start()?, false), third: start()? })
    }

    pub(crate) fn addresses(&self) -> [String; 3] {
        [&self.frozen.0, &self.killed.0, &self.third].map(|server| server.address().to_string())
    }

    pub(crate) fn state(&self) -> DemoState {
        let (frozen, is_frozen) = &self.frozen;
        let (killed, is_killed) = &self.killed;
        let [freeze, kill] = [if *is_frozen { "thaw" } else { "freeze" }, if *is_killed { "restart" } else { "kill" }];
        let commands = [format!("{kill} {}", killed.address()), format!("{freeze} {}", frozen.address())];
        DemoState { frozen: is_frozen.then(|| frozen.address().to_string()), commands }
    }

    /// Kills a node, or restarts it. Returns what was done.
    pub(crate) fn kill(&mut self) -> String {
        let (server, is_killed) = &mut self.killed;
        let (done, outcome) = if *is_killed { ("restarts", server.resume()) } else { ("is killed", server.kill()) };
        match outcome {
            Ok(()) => *is_killed = !*is_killed,
            Err(error) => return format!("{} stays as it is: {error}", server.address()),
        }
        format!("{} {done}", server.address())
    }

    /// Freezes a node, or thaws it. Returns what was done.
    pub(crate) fn freeze(&mut self) -> String {
        let (server, is_frozen) = &mut self.frozen;
        *is_frozen = !*is_frozen;
        if *is_frozen {
            server.pause_reading();
            return format!("{} freezes", server.address());
        }
        server.resume_reading();
        format!("{} thaws", server.address())
    }
}
