//! All interleavings of the tasks of a client, by loom.
//!
//! The driver uses locks, sockets and time only through its runtime, so a runtime with loom's locks
//! is enough: the code under test is the code that ships. A lost wake-up, or locks that are taken
//! in different orders, leave a model in which no thread can continue.

extern crate alloc;

#[path = "interleavings/bench.rs"]
#[allow(dead_code, reason = "some of it is for the schedules")]
mod bench;
#[path = "interleavings/clocks.rs"]
mod clocks;
#[path = "interleavings/edge.rs"]
mod edge;
#[path = "interleavings/ending.rs"]
mod ending;
#[path = "interleavings/engine.rs"]
mod engine;
#[path = "interleavings/establishing.rs"]
mod establishing;
#[path = "interleavings/flaws.rs"]
mod flaws;
#[path = "interleavings/hand_over.rs"]
mod hand_over;
#[path = "interleavings/model.rs"]
mod model;
#[path = "interleavings/selecting.rs"]
mod selecting;
#[path = "interleavings/sleepers.rs"]
#[allow(dead_code, reason = "only the schedules wake them")]
mod sleepers;
