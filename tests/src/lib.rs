//! Harness of Poolhouse: runners of the official tests, reference models, the seeded simulator, fuzz bodies.
//!
//! Everything here runs on virtual time and without a server unless its name says otherwise.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod choices;
pub mod cmap;
pub mod fuzz;
pub mod model;
pub mod rng;
pub mod sim;
