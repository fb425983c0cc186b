//! All simulated runs of a tiny shape.

use core::cell::RefCell;
use core::time::Duration;
use libtest_mimic::{Failed, Trial};
use poolhouse_core::pool::PoolOptions;
use poolhouse_tests::choices::Exhaustive;
use poolhouse_tests::sim::{self, Counters, Kind, Shape, Store};

pub(crate) fn trials() -> Vec<Trial> {
    let one = PoolOptions { max_pool_size: 1, max_connecting: 1, ..PoolOptions::DEFAULT };
    let two = PoolOptions { max_pool_size: 2, max_connecting: 1, ..PoolOptions::DEFAULT };
    let filled = PoolOptions { min_pool_size: 1, max_idle_time: Some(Duration::from_millis(1)), ..two };
    let core = [
        Kind::Ready,
        Kind::CheckOut,
        Kind::Claim,
        Kind::CancelBound,
        Kind::CancelUnbound,
        Kind::CancelGranted,
        Kind::CheckIn,
        Kind::PollEstablish,
        Kind::Established,
        Kind::EstablishFailed,
    ];
    let with = |more: &[Kind]| [&core[..], more].concat();
    let cases = [
        ("two clients, one connection", one, Store::Heap, with(&[]), 9),
        ("two clients, two connections", two, Store::Heap, with(&[]), 9),
        ("two clients, two connections in place", two, Store::Fixed2, with(&[Kind::Drain, Kind::CheckInBroken]), 7),
        ("clears and interrupts", two, Store::Heap, with(&[Kind::Clear, Kind::ClearInterrupt, Kind::Drain]), 7),
        ("close", two, Store::Heap, with(&[Kind::Close, Kind::EstablishFailedClear]), 8),
        ("no subscriber", two, Store::Heap, with(&[Kind::CheckOutUntimed, Kind::CheckInUntimed, Kind::Drain]), 7),
        ("filling", two, Store::Heap, with(&[Kind::Fill, Kind::Clear, Kind::TimeExact]), 7),
        ("population, idling and deadlines", filled, Store::Heap, with(&[Kind::TimeExact, Kind::CheckOutDeadline]), 7),
    ];
    let trial = |(name, options, store, kinds, steps): (&str, PoolOptions, Store, Vec<Kind>, u32)| {
        let shape = Shape::tiny(options, store, &kinds, steps);
        Trial::test(format!("every run of {steps} steps: {name}"), move || every_run(&shape))
    };
    cases.into_iter().map(trial).collect()
}

fn every_run(shape: &Shape) -> Result<(), Failed> {
    let mut choices = Exhaustive::new();
    let mut runs = 0_u64;
    loop {
        let before = choices.clone();
        if let Err(error) = sim::caught(|| sim::run(shape, &mut choices, &mut Counters::default(), None)) {
            let trace = RefCell::new(Vec::new());
            let mut again = before;
            let _same = sim::caught(|| sim::run(shape, &mut again, &mut Counters::default(), Some(&trace)));
            return Err(format!("run {runs}:\n{}\n{error}", trace.into_inner().join("\n")).into());
        }
        runs += 1;
        if !choices.advance() {
            break;
        }
    }
    println!("{runs} runs");
    Ok(())
}
