//! Medians of rounds in which all cases take turns, so other load of the machine affects all of
//! them.

use std::time::Instant;

/// The number of figures of a median.
pub(crate) const ROUNDS: usize = 9;

/// The time of one step of each case, in nanoseconds.
pub(crate) fn medians<const N: usize>(times: u32, mut cases: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut figures = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (case, figures) in cases.iter_mut().zip(&mut figures) {
            figures.push(time_of(times, *case));
        }
    }
    figures.map(median)
}

/// The time of one of `times` steps, in nanoseconds.
pub(crate) fn time_of(times: u32, step: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        step();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

/// The median of the figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
