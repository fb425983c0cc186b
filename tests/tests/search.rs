//! All states of small scopes of the pool, the multiplexed pool and the monitor; for a control
//! plane, the states after some steps.
//!
//! A unit test of the library searches the smallest scopes. The others are ignored unless `POOLHOUSE_EFFORT` is
//! more than 1, or `POOLHOUSE_SEARCH=all`, which also explores the bigger ones: they take minutes and some
//! gigabytes.
#![forbid(unsafe_code)]

use libtest_mimic::{Arguments, Failed, Trial};
use poolhouse_tests::effort;
use poolhouse_tests::oracle::Checks;
use poolhouse_tests::search::{Figures, Stopped, control, monitor, mux, pool};
use poolhouse_tests::suite::as_one;
use std::process::ExitCode;
use std::sync::Mutex;

/// Figures of the explored scopes.
static FIGURES: Mutex<Vec<(String, Figures)>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    as_one(run)
}

fn run() -> ExitCode {
    let arguments = Arguments::from_args();
    let all = std::env::var("POOLHOUSE_SEARCH").is_ok_and(|which| which == "all");
    let (mut pools, mut controls) = (pool::scopes(), control::scopes());
    if all {
        pools.extend(pool::bigger());
        controls.extend(control::bigger());
    }
    let mut trials = Vec::new();
    trials.extend(pools.into_iter().map(|shape| trial("pool", shape.name, move || shape.run())));
    trials.extend(mux::scopes().into_iter().map(|shape| trial("mux", shape.name, move || shape.run())));
    trials.extend(monitor::scopes().into_iter().map(|shape| trial("monitor", shape.name, move || shape.run())));
    trials.extend(controls.into_iter().map(|shape| trial("control", shape.name, move || shape.run())));
    let is_long = all || effort() > 1;
    if !is_long && !arguments.list {
        println!("skipped: search: it takes minutes without optimization (POOLHOUSE_EFFORT=2)");
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(!is_long)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && is_long {
        tell();
    }
    conclusion.exit_code()
}

fn trial(kind: &str, name: &str, run: impl FnOnce() -> Result<Figures, Stopped> + Send + 'static) -> Trial {
    let name = format!("{kind}: {name}");
    Trial::test(name.clone(), move || {
        let figures = run().map_err(|stopped| Failed::from(stopped.to_string()))?;
        FIGURES.lock().expect("no thread panicked while it stored figures").push((name, figures));
        Ok(())
    })
}

/// Prints the figures of the explored scopes.
fn tell() {
    let mut all = core::mem::take(&mut *FIGURES.lock().expect("no thread panicked while it stored figures"));
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, figures) in &all {
        println!("{name}: {figures}");
    }
    let sum = |of: fn(&Figures) -> f64| all.iter().map(|(_, figures)| of(figures)).sum::<f64>();
    let (states, transitions) = (sum(|figures| figures.states as f64), sum(|figures| figures.transitions as f64));
    let (seconds, complete) = (sum(|figures| figures.seconds), sum(|figures| f64::from(u8::from(figures.complete))));
    println!(
        "{} scopes, {complete} complete, {states} states, {transitions} transitions, {seconds:.1} CPU-s",
        all.len()
    );
    let mut checks = Checks::default();
    all.iter().for_each(|(_, figures)| checks.merge(&figures.checks));
    println!("invariants: {}", checks.json());
}
