//! Lateness of timers and wake-ups, compared with that of the machine itself.

use core::time::Duration;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// P19: the permitted median. On two cores with a load of 9 it is below a millisecond.
const P50_MAX: Duration = Duration::from_millis(5);

/// The permitted 99th percentile. On two cores with a load of 9 it is below 40 ms.
const P99_MAX: Duration = Duration::from_millis(150);

/// The factor by which the client may be later than the machine.
const FACTOR: u32 = 4;

/// The number of rounds of which one must be in time.
///
/// If more threads are ready than there are cores, each thread waits for its turn, and by chance those
/// of the client wait for longer than those that measure the machine. On two cores with a load of 15, 4
/// of 84 rounds were late; with a load of 20 and other cases in the same process, 12 of 27. A client with
/// late timers is late in every round. If chance makes half of the rounds late, ten late ones are one case
/// in a thousand.
const ROUNDS: usize = 10;

/// How late something was, in many measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl Lateness {
    /// Evaluates measurements, of which there must be at least a hundred.
    #[must_use]
    pub fn of(mut measured: Vec<Duration>) -> Self {
        assert!(measured.len() >= 100, "{} measurements", measured.len());
        measured.sort_unstable();
        let at = |percent| measured[(measured.len() - 1) * percent / 100];
        Self { p50: at(50), p99: at(99) }
    }

    /// The lateness of the machine: a thread sleeps until each of these times and then wakes another
    /// thread, as the timers of a client do.
    #[must_use]
    pub fn of_machine(due: &[Instant]) -> Self {
        let mut due = due.to_vec();
        due.sort_unstable();
        let (wake, woken) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for due in due {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    wake.send(due).expect("the other thread waits");
                }
            });
            Self::of(woken.iter().map(|due| Instant::now().saturating_duration_since(due)).collect())
        })
    }

    /// Measures in up to ten rounds, until both percentiles of a round are small. The limits grow
    /// with the lateness of the machine.
    ///
    /// - `round`: returns the lateness of what is tested, and that of the machine at the same time.
    pub async fn assert_small(what: &str, mut round: impl AsyncFnMut() -> (Self, Self)) {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (late, machine) = round().await;
            println!("lateness of {what}: {late:?}; of the machine: {machine:?}");
            if late.p50 <= P50_MAX + machine.p50 * FACTOR && late.p99 <= P99_MAX + machine.p99 * FACTOR {
                return;
            }
            rounds.push((late, machine));
        }
        panic!("lateness of {what}, and of the machine, in each round: {rounds:?}");
    }
}
