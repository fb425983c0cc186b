//! The multiplexed pool against its reference model.

use crate::choices::Bytes;
use crate::sim::mux::{Counters, Shape, live};

/// Draws a shape and a life from the bytes.
///
/// # Panics
///
/// Panics when pool and model differ, or an invariant is broken.
pub fn mux(data: &[u8]) {
    let mut choices = Bytes::new(data);
    let mut shape = Shape::draw(&mut choices);
    // The bytes say when it is over.
    shape.steps = 1_000;
    live(&shape, &mut choices, &mut Counters::default(), None);
}
