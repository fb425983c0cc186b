//! The clock and its timers: never early, hardly late, in order, at any distance, and cancelled
//! when they are dropped.

use super::alarm::Alarm;
use super::{Hosted, Subject, case_of_threads, run_case};
use crate::lateness::Lateness;
use crate::patience::eventually;
use crate::suite::Suite;
use alloc::sync::Arc;
use core::pin::pin;
use core::task::Waker;
use core::time::Duration;
use futures_lite::FutureExt;
use poolhouse_client::{Net, Platform};
use poolhouse_core::Instant;
use poolhouse_driver::BaseRuntime as _;
use std::sync::{Mutex, mpsc};
use std::thread;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("timers::never_ring_early", || run_case::<S>(never_ring_early))
        .case("timers::ring_in_the_order_of_their_times", || run_case::<S>(ring_in_the_order_of_their_times))
        .case("timers::far_deadlines_never_expire", || run_case::<S>(far_deadlines_never_expire))
        .case("timers::wake_who_polled_last", || run_case::<S>(wake_who_polled_last))
        .case("timers::dropped_ones_keep_no_waker", || run_case::<S>(dropped_ones_keep_no_waker))
}

/// Adds the cases that need memory for each timer, or threads.
pub(super) fn add_hosted<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = suite.case("timers::many_that_are_far_are_dropped_at_once", || {
        run_case::<Hosted<P>>(many_that_are_far_are_dropped_at_once)
    });
    let suite =
        suite.case("timers::ring_soon_after_their_times", || run_case::<Hosted<P>>(ring_soon_after_their_times));
    let suite = case_of_threads(suite, "timers::wake_ups_take_effect_soon", || {
        run_case::<Hosted<P>>(wake_ups_take_effect_soon)
    });
    let suite = suite.alone("timers::ring_soon_after_their_times").alone("timers::wake_ups_take_effect_soon");
    case_of_threads(suite, "timers::can_move_to_other_threads", || run_case::<Hosted<P>>(can_move_to_other_threads))
}

async fn never_ring_early<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    runtime.sleep_until(Instant::ORIGIN).await;
    for nanos in [0, 1, 2, 999, 1_000, 1_001, 65_537, 999_999, 1_000_001, 3_333_333, 10_000_000, 50_000_000] {
        let at = runtime.now().saturating_add(Duration::from_nanos(nanos));
        runtime.sleep_until(at).await;
        let now = runtime.now();
        assert!(now >= at, "{now:?} is before {at:?}, which was in {nanos} ns");
    }
}

/// Several timers in one task: when a timer is ready, all earlier ones are ready too.
async fn ring_in_the_order_of_their_times<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    let begun = runtime.now();
    let count = S::LIMITS.open.min(24);
    let mut timers = Vec::new();
    for i in 0..count {
        // The timers are created neither in the order of their times nor in reverse.
        let at = begun.saturating_add(Duration::from_micros(1_700) * u32::try_from(i * 7 % count).expect("a few"));
        timers.push((at, Box::pin(runtime.sleep_until(at))));
    }
    let alarm = Arc::new(Alarm::default());
    while !timers.is_empty() {
        let mut rung = Vec::new();
        for (i, (at, timer)) in timers.iter_mut().enumerate() {
            if alarm.poll(timer.as_mut()).is_ready() {
                let now = runtime.now();
                assert!(now >= *at, "{now:?} is before {at:?}");
                rung.push(i);
            }
        }
        let latest = rung.iter().map(|i| timers[*i].0).max();
        while let Some(i) = rung.pop() {
            drop(timers.swap_remove(i));
        }
        for (at, timer) in timers.iter_mut().filter(|(at, _)| latest.is_some_and(|latest| *at < latest)) {
            assert!(alarm.poll(timer.as_mut()).is_ready(), "the timer of {at:?} fires after that of {latest:?}");
        }
        timers.retain(|(at, _)| latest.is_none_or(|latest| *at >= latest));
        if !timers.is_empty() {
            alarm.rung().await;
        }
    }
}

async fn far_deadlines_never_expire<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    let begun = runtime.now();
    let before_the_end = Instant::from_nanos(Instant::MAX.as_nanos() - 1);
    let far = [Instant::MAX, before_the_end, begun.saturating_add(DAY * 366), begun.saturating_add(DAY * 366 * 300)];
    for at in far {
        let never = async {
            runtime.sleep_until(at).await;
            panic!("the timer of {at:?} fired");
        };
        let near = runtime.now().saturating_add(Duration::from_millis(10));
        never.or(runtime.sleep_until(near)).await;
        assert!(runtime.now() >= near);
    }
}

async fn wake_who_polled_last<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    let (first, last) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
    let at = runtime.now().saturating_add(Duration::from_millis(30));
    let mut timer = pin!(runtime.sleep_until(at));
    for alarm in [&first, &last, &first, &last] {
        if alarm.poll(timer.as_mut()).is_ready() {
            // The machine was slow, and the time has passed already.
            assert!(runtime.now() >= at);
            return;
        }
    }
    while {
        last.rung().await;
        last.poll(timer.as_mut()).is_pending()
    } {}
    assert!(runtime.now() >= at);
}

/// The waker of a dropped timer is dropped at the latest when the timer would have fired.
async fn dropped_ones_keep_no_waker<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    let alarm = Arc::new(Alarm::default());
    for i in 0..10_000 {
        let at = runtime.now().saturating_add(Duration::from_millis(20) + Duration::from_micros(i % 50));
        // Each timer is polled once; most are still pending.
        let _ = alarm.poll(pin!(runtime.sleep_until(at)));
    }
    eventually("the wakers are dropped", || alarm.wakers() == 0).await;
}

async fn many_that_are_far_are_dropped_at_once<P: Platform + Default>(subject: &Hosted<P>) {
    let runtime: &Net<_> = subject.runtime();
    let alarm = Arc::new(Alarm::default());
    for far in [DAY, DAY * 366 * 300] {
        let begin = runtime.now().saturating_add(far);
        let begin_all = || (0..5_000).map(|i| Box::pin(runtime.sleep_until(begin.saturating_add(DAY * i))));
        let mut timers: Vec<_> = begin_all().collect();
        for timer in &mut timers {
            assert!(alarm.poll(timer.as_mut()).is_pending());
        }
        drop(timers);
        for mut timer in begin_all() {
            assert!(alarm.poll(timer.as_mut()).is_pending());
        }
        eventually("the wakers are dropped", || alarm.wakers() == 0).await;
    }
}

/// P19, B1: many timers in one task, which are created neither in the order of their times nor in
/// reverse.
async fn ring_soon_after_their_times<P: Platform + Default>(subject: &Hosted<P>) {
    const COUNT: u64 = 200;
    let platform = subject.runtime().platform();
    let (begun, begun_machine) = (platform.now(), std::time::Instant::now());
    let afters: Vec<_> = (0..COUNT).map(|i| Duration::from_millis(50 + i * 37 % COUNT * 2)).collect();
    let due: Vec<_> = afters.iter().map(|after| begun_machine + *after).collect();
    let machine = thread::spawn(move || Lateness::of_machine(&due));
    let mut timers: Vec<_> = afters
        .iter()
        .map(|after| begun.saturating_add(*after))
        .map(|at| (at, Box::pin(platform.sleep_until(at))))
        .collect();
    let (alarm, mut late) = (Arc::new(Alarm::default()), Vec::new());
    while !timers.is_empty() {
        timers.retain_mut(|(at, timer)| {
            let is_pending = alarm.poll(timer.as_mut()).is_pending();
            if !is_pending {
                late.push(platform.now().saturating_since(*at));
            }
            is_pending
        });
        if !timers.is_empty() {
            alarm.rung().await;
        }
    }
    let machine = machine.join().expect("the machine is measured");
    Lateness::of(late).assert_small("timers", machine);
}

/// B1: the time from a wake-up by another thread until the task runs.
async fn wake_ups_take_effect_soon<P: Platform + Default>(_subject: &Hosted<P>) {
    const COUNT: usize = 200;
    let (task, machine) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
    let woken_at = Arc::new(Mutex::new(std::time::Instant::now()));
    let since = |woken_at: &Mutex<std::time::Instant>| woken_at.lock().expect("no panic").elapsed();
    let (turn, is_turn) = mpsc::channel();
    let waker = thread::spawn({
        let (task, machine, woken_at) = (Arc::clone(&task), Arc::clone(&machine), Arc::clone(&woken_at));
        move || {
            while let Ok(is_task) = is_turn.recv() {
                thread::sleep(Duration::from_micros(200));
                *woken_at.lock().expect("no panic") = std::time::Instant::now();
                Waker::from(Arc::clone(if is_task { &task } else { &machine })).wake();
            }
        }
    });
    let (mut of_task, mut of_machine) = (Vec::new(), Vec::new());
    for _ in 0..COUNT {
        turn.send(true).expect("it waits");
        task.rung().await;
        of_task.push(since(&woken_at));
        turn.send(false).expect("it waits");
        machine.wait();
        of_machine.push(since(&woken_at));
    }
    drop(turn);
    waker.join().expect("no panic");
    Lateness::of(of_task).assert_small("wake-ups", Lateness::of(of_machine));
}

/// Timers are polled on one thread, and awaited or dropped on another.
async fn can_move_to_other_threads<P: Platform + Default>(subject: &Hosted<P>) {
    let platform = subject.runtime().platform();
    let (alarm, elsewhere) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
    let at = platform.now().saturating_add(Duration::from_millis(500));
    let mut timer = Box::pin(platform.sleep_until(at));
    let mut dropped = Box::pin(platform.sleep_until(at.saturating_add(DAY)));
    assert!(alarm.poll(timer.as_mut()).is_pending());
    assert!(alarm.poll(dropped.as_mut()).is_pending());
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(dropped);
            while elsewhere.poll(timer.as_mut()).is_pending() {
                elsewhere.wait();
            }
            drop(timer);
        });
    });
    assert!(platform.now() >= at);
    eventually("the wakers are dropped", || alarm.wakers() + elsewhere.wakers() == 0).await;
}
