//! The client on smol against fake replica sets and routers: the selected servers, and failures of
//! the set.

extern crate alloc;

mod replica_set {
    #[cfg(feature = "auth")]
    mod arbiters;
    mod commands;
    mod cursor_limits;
    mod cursors;
    mod discovery;
    mod events;
    mod faults;
    mod load;
    mod max_time;
    mod members;
    mod preferences;
    mod read_ahead;
    mod retries;
    mod session_cursors;
    mod sessions;
    mod sharded;
    mod support;
    mod transactions;
    mod unacknowledged;
}
