//! What models and oracles share: the events of pools, with numbers instead of ids, and a monitor
//! and pools with the state that their host keeps.

pub mod control;
pub mod monitor;
pub mod mux;
pub mod pool;
