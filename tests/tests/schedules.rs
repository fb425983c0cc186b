//! What may happen when several tasks meet: some thousand orders of the tasks of a client, chosen by chance, by shuttle.
//!
//! loom takes every order (`interleavings`), and for that its scenarios are small. Here they are the same ones without a limit of preemptions, and [`lives`] of more
//! tasks, which do several things each, by chance too. Half of the schedules are by PCT, which finds a bug that needs a few preemptions at certain places with a
//! probability that is known; in the others any thread may go on at any time.
//!
//! - `POOLHOUSE_SCHEDULES=n`: n times as many schedules. `SHUTTLE_RANDOM_SEED=n`: others.
//! - A schedule that fails is printed. It is run again, alone, and its plan told, with the name of its test and what stands between the quotes, line breaks included:
//!
//!   ```sh
//!   POOLHOUSE_SCHEDULE='..' cargo test -p poolhouse-tests --all-features --test schedules -- --exact lives::lives_of_few_preemptions --nocapture
//!   ```

extern crate alloc;

#[path = "interleavings/bench.rs"]
mod bench;
#[path = "interleavings/clocks.rs"]
mod clocks;
#[path = "interleavings/ending.rs"]
mod ending;
#[path = "schedules/engine.rs"]
mod engine;
#[path = "interleavings/establishing.rs"]
mod establishing;
#[path = "interleavings/flaws.rs"]
mod flaws;
#[path = "interleavings/hand_over.rs"]
mod hand_over;
#[path = "schedules/lives.rs"]
mod lives;
#[path = "interleavings/model.rs"]
mod model;
#[path = "interleavings/selecting.rs"]
mod selecting;
#[path = "interleavings/sleepers.rs"]
mod sleepers;
