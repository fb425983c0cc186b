//! The pool against its reference model.

use crate::choices::Bytes;
use crate::sim::{Counters, Shape, run};

/// Draws parameters and a run from the bytes.
pub fn pool(data: &[u8]) {
    let mut choices = Bytes::new(data);
    let mut shape = Shape::draw(&mut choices);
    // The run ends with the bytes.
    shape.steps = 1_000;
    if data.last().is_some_and(|byte| byte % 2 == 1) {
        shape = shape.with_reconfiguration();
    }
    if data.last().is_some_and(|byte| byte % 4 == 3) {
        shape = shape.with_filling();
    }
    if data.last().is_some_and(|byte| byte % 8 > 4) {
        shape = shape.with_untimed_calls();
    }
    run(&shape, &mut choices, &mut Counters::default(), None);
}
