//! The multiplexed pool against its reference model.

use crate::choices::Bytes;
use crate::sim::mux::{Counters, Shape, run};

/// Draws parameters and a run from the bytes.
pub fn mux(data: &[u8]) {
    let mut choices = Bytes::new(data);
    let mut shape = Shape::draw(&mut choices);
    // The run ends with the bytes.
    shape.steps = 1_000;
    run(&shape, &mut choices, &mut Counters::default(), None);
}
