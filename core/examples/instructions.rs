//! Repeats one operation a given number of times; `tests/scripts/instructions` counts its
//! instructions.
//!
//! Usage: `instructions <case> <times>`. Cases of the pool: `bare`, `fixed`, `locked`, `handoff`,
//! `floor`. Cases of the multiplexed pool: `stream`, `stream99`, `request`, `request99`,
//! `request8`.

#[path = "../benches/support/warm.rs"]
mod warm;

use core::hint::black_box;
use poolhouse_core::Instant;
use poolhouse_core::mux::{Acquire, HostOptions, Mux, MuxAction, MuxId, MuxOnHeap, MuxOptions, Stream, Written};
use poolhouse_core::pool::{CheckOut, Claim, Fixed, Health, OnHeap, Pool, PoolAction};
use std::sync::Mutex;
use warm::{cycle, granted, warm};

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().expect("a case");
    let times: u64 = args.next().expect("a number of times").parse().expect("a number");
    match case.as_str() {
        "bare" => cycle(&mut warm::<OnHeap>(), &mut (), times),
        "fixed" => cycle(&mut warm::<Fixed<16, 16>>(), &mut (), times),
        "locked" => locked(&Mutex::new(warm::<OnHeap>()), times),
        "handoff" => handoff(&mut warm::<OnHeap>(), times),
        "stream" => stream(&mut warm_mux(1, 0), times),
        "stream99" => stream(&mut warm_mux(1, 99), times),
        "request" => request(&mut warm_mux(1, 0), times),
        "request99" => request(&mut warm_mux(1, 99), times),
        "request8" => request(&mut warm_mux(8, 0), times),
        "floor" => floor(&Mutex::new((0..10).collect()), times),
        other => panic!("unknown case {other}"),
    }
}

fn locked(pool: &Mutex<Pool<OnHeap>>, times: u64) {
    let pool = black_box(pool);
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let result = pool.lock().expect("not poisoned").check_out(now, None, &mut ());
        let lease = granted(result.expect("ready"));
        pool.lock().expect("not poisoned").check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
    }
}

/// Both connections are in use and one waiter is queued; a check-in serves it, and a new waiter is
/// queued.
fn handoff(pool: &mut Pool<OnHeap>, times: u64) {
    let mut lease = granted(pool.check_out(Instant::ORIGIN, None, &mut ()).expect("ready"));
    let _kept = granted(pool.check_out(Instant::ORIGIN, None, &mut ()).expect("ready"));
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let queued = pool.check_out(now, Some(Instant::from_nanos(time + 1_000_000)), &mut ()).expect("ready");
        let CheckOut::Queued(_) = black_box(queued) else { unreachable!("all are in use") };
        pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
        let Some(PoolAction::Wake(waiter)) = pool.poll_prompt() else { unreachable!("it was served") };
        let Claim::Granted(next) = pool.claim(now, waiter) else { unreachable!("it was served") };
        lease = next;
        black_box(pool.poll_timeout());
    }
    pool.check_in(Instant::from_nanos(times), lease, Health::Healthy, &mut ()).expect("ours");
}

fn floor(stack: &Mutex<Vec<u64>>, times: u64) {
    for _ in 0..times {
        let item = stack.lock().expect("not poisoned").pop();
        stack.lock().expect("not poisoned").extend(black_box(item));
    }
}

/// A multiplexed pool whose connections have 32,768 stream ids, of which this percentage is taken,
/// at random.
fn warm_mux(conns: u32, percent: u32) -> Mux<MuxOnHeap> {
    let ids = 32_768;
    let host = HostOptions {
        core_connections: conns,
        max_connections: conns,
        max_requests_per_connection: ids,
        new_connection_threshold: ids,
    };
    let config = MuxOptions { local: host, ..MuxOptions::DEFAULT }.validate().expect("valid");
    let mut mux = Mux::new(Instant::ORIGIN, MuxId::new(1), config, &mut ());
    while let Some(MuxAction::Establish(conn)) = mux.poll_action(Instant::ORIGIN) {
        mux.handle_established(Instant::ORIGIN, conn, &mut ()).expect("pending");
    }
    let mut streams: Vec<Stream> = (0..conns * ids).map(|_| acquired(&mut mux, Instant::ORIGIN)).collect();
    let mut state = 0x9e37_79b9_u32;
    while streams.len() > (conns * ids / 100 * percent) as usize {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let place = state as usize % streams.len();
        mux.release(Instant::ORIGIN, streams.swap_remove(place), Written::No, &mut ()).expect("ours");
    }
    mux
}

fn acquired(mux: &mut Mux<MuxOnHeap>, now: Instant) -> Stream {
    let Ok(Acquire::Granted(stream)) = mux.acquire(now, None, &mut ()) else { unreachable!("an id is free") };
    stream
}

fn stream(mux: &mut Mux<MuxOnHeap>, times: u64) {
    let mux = black_box(mux);
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let stream = black_box(acquired(mux, now));
        mux.release(now, stream, Written::No, &mut ()).expect("ours");
    }
}

fn request(mux: &mut Mux<MuxOnHeap>, times: u64) {
    let mux = black_box(mux);
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let stream = black_box(acquired(mux, now));
        let _request =
            black_box(mux.handle_reply(now, stream.conn(), i32::from(stream.id()), &mut ()).expect("it is awaited"));
        mux.release(now, stream, Written::Perhaps, &mut ()).expect("ours");
    }
}
