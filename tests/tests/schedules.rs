//! Random orders of the tasks of a client, by shuttle.
//!
//! loom explores every order (`interleavings`), and therefore its scenarios are small. Here they
//! are the same ones without a limit of preemptions, and [`runs`] of more tasks, which perform
//! several random actions each. Half of the schedules are by PCT, which finds a bug that needs a
//! few preemptions at certain points with a known probability; in the others any thread may run at
//! any time.
//!
//! - The number of schedules and the seed of the first of them: see [`poolhouse_tests::seeds`].
//! - A schedule that fails is printed. To replay it alone and print its plan, pass the name of its
//!   test and the text between the quotes, including line breaks:
//!
//!   ```sh
//!   POOLHOUSE_SCHEDULE='..' cargo test -p poolhouse-tests --all-features --test schedules -- --exact runs::runs_of_few_preemptions --nocapture
//!   ```

extern crate alloc;

#[path = "interleavings/bench.rs"]
mod bench;
#[path = "interleavings/clocks.rs"]
mod clocks;
#[path = "interleavings/edge.rs"]
mod edge;
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
#[path = "interleavings/model.rs"]
mod model;
#[path = "schedules/runs.rs"]
mod runs;
#[path = "interleavings/selecting.rs"]
mod selecting;
#[path = "interleavings/sleepers.rs"]
mod sleepers;
