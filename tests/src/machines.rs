//! What models and oracles share: the events of pools, with numbers instead of ids, and a monitor
//! with the state that its host keeps.

pub mod monitor;
pub mod mux;
pub mod pool;
