//! Naive reference models, written from the requirements and not from the machines: lists, and a look at everything.
//! The numbers P and S in comments are [invariants](crate::invariants).

pub mod monitor;
pub mod mux;
pub mod pool;
pub mod selection;
pub mod topology;
