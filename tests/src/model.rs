//! Naive reference models, written from the requirements and not from the state machines. They keep
//! plain lists and scan all of them for each question. The numbers P and S in comments are
//! [invariants](crate::invariants).

pub mod monitor;
pub mod mux;
pub mod pool;
pub mod selection;
pub mod topology;
