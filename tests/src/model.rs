//! Naive models, written from the requirements and not from the machines, to compare the machines with.

pub mod topology;
