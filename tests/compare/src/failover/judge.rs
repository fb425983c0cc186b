//! The records of a client, and what the judge finds in them and in the database.

use super::client::Seen;
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// An operation of a client. Times are those of the system's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) is_write: bool,
    pub(super) id: i64,
    pub(super) begin_ms: f64,
    /// The end, or that of the client while it is running.
    pub(super) end_ms: f64,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Done,
    /// A read that did not find its write.
    Missing,
    Failed(String),
    Running,
}

const ERROR_CHARACTERS: usize = 160;

/// The columns of a table.
pub(super) const COLUMNS: [&str; 12] = [
    "writes",
    "reads",
    "failed writes",
    "failed reads",
    "not ended",
    "lost",
    "doubled",
    "not read",
    "longest gap, ms",
    "slowest, ms",
    "return, ms",
    "opened",
];

/// The figures of a client in a window.
#[derive(Debug, Default)]
pub(super) struct Judged {
    writes: u64,
    reads: u64,
    failed_writes: u64,
    failed_reads: u64,
    /// Operations that began before the last window and were running at its end.
    not_ended: u64,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    missing: u64,
    gap_ms: f64,
    slowest_ms: f64,
    /// The begin of each error, with its number.
    errors: HashMap<String, u64>,
}

impl Judged {
    /// The most frequent errors with their numbers.
    pub(super) fn errors(&self) -> String {
        const SHOWN: usize = 2;
        let mut errors: Vec<_> = self.errors.iter().collect();
        errors.sort_by(|one, other| other.1.cmp(one.1).then_with(|| one.0.cmp(other.0)));
        let shown = errors.iter().take(SHOWN).map(|(why, count)| format!("{count} times {why}"));
        shown.collect::<Vec<_>>().join("; ")
    }

    /// The figures in the order of [`COLUMNS`].
    pub(super) fn figures(&self, seen: Seen) -> [f64; 12] {
        let failed = [self.failed_writes, self.failed_reads, self.not_ended];
        let counts = [self.writes, self.reads, failed[0], failed[1], failed[2], self.lost, self.doubled, self.missing];
        let times = [self.gap_ms, self.slowest_ms, seen.return_ms, seen.opened];
        core::array::from_fn(|place| match place.checked_sub(counts.len()) {
            None => counts[place] as f64,
            Some(place) => times[place],
        })
    }
}

/// Judges the operations that ended in a window.
///
/// - `copies`: how often a write is stored.
/// - `last_ms`: the end of the window, but infinite for the last one, which has all later operations too.
pub(super) fn judge(records: &[Record], copies: impl Fn(i64) -> u64, window_ms: Range<f64>, last_ms: f64) -> Judged {
    let mut judged = Judged::default();
    let mut successes = Vec::new();
    for record in records.iter().filter(|record| (window_ms.start..last_ms).contains(&record.end_ms)) {
        judged.slowest_ms = judged.slowest_ms.max(record.end_ms - record.begin_ms);
        let is_done = matches!(record.outcome, Outcome::Done | Outcome::Missing);
        let has_failed = matches!(record.outcome, Outcome::Failed(_));
        judged.not_ended += u64::from(record.outcome == Outcome::Running && record.begin_ms < window_ms.start);
        if is_done {
            successes.push(record.end_ms);
        }
        if let Outcome::Failed(why) = &record.outcome {
            *judged.errors.entry(why.chars().take(ERROR_CHARACTERS).collect()).or_default() += 1;
        }
        if record.is_write {
            let copies = copies(record.id);
            judged.writes += u64::from(is_done);
            judged.failed_writes += u64::from(has_failed);
            judged.lost += u64::from(is_done && copies == 0);
            judged.doubled += u64::from(copies > 1);
        } else {
            judged.reads += u64::from(is_done);
            judged.failed_reads += u64::from(has_failed);
            judged.missing += u64::from(record.outcome == Outcome::Missing);
        }
    }
    successes.sort_by(f64::total_cmp);
    // The first window begins with the first success.
    let begin_ms = if window_ms.start.is_finite() { Some(window_ms.start) } else { successes.first().copied() };
    let moments: Vec<f64> = begin_ms.into_iter().chain(successes).chain([window_ms.end]).collect();
    // No figure for a first window without a success.
    judged.gap_ms = moments.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::NAN, f64::max);
    judged
}

/// The time of the system's clock.
pub(super) fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}
