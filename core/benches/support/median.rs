//! Medians of rounds in which each case has its turn, so that what else the machine does falls on all of them.

use std::time::Instant;

/// How many figures a median is taken of.
pub(crate) const ROUNDS: usize = 9;

/// The nanoseconds that one step of each case takes.
pub(crate) fn medians<const N: usize>(times: u32, mut cases: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut figures = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (case, figures) in cases.iter_mut().zip(&mut figures) {
            figures.push(time_of(times, *case));
        }
    }
    figures.map(median)
}

/// Nanoseconds of one of `times` steps.
pub(crate) fn time_of(times: u32, step: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        step();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

/// The one in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
