//! Reference models: naive, written from the requirements and not from the machines.

pub mod monitor;
pub mod selection;
