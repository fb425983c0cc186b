//! Reduction of a failing run to the decisions that the failure needs.

use crate::choices::Script;
use core::time::Duration;
use std::time::Instant;

/// A reduced run, and its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// Its decisions.
    pub script: Script,
    /// Its error.
    pub error: String,
    /// Number of runs executed for the reduction.
    pub runs: u32,
}

/// Limits of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of further runs.
    pub runs: u32,
    /// Time after which no further run is started.
    pub time: Duration,
}

impl Limits {
    /// The limits for a failure in a test.
    pub const DEFAULT: Self = Self { runs: 4_000, time: Duration::from_secs(20) };
}

/// Reduces a failing run while it fails in the same way, as determined by [`head`] (delta
/// debugging).
///
/// Ranges of decisions are removed, long ones first, then decisions are set to zero, then decreased
/// one by one; repeated until no step helps.
///
/// - `error`: the failure of the run.
/// - `limits`: limits of the reduction.
/// - `live`: executes a run; `None` if it does not fail.
pub fn shrink(script: Script, error: String, limits: Limits, run: impl FnMut(&Script) -> Option<String>) -> Shrunk {
    let wanted = head(&error);
    let started = Instant::now();
    let mut search = Search { best: Shrunk { script, error, runs: 0 }, wanted, limits, started, run };
    loop {
        let before = search.best.script.clone();
        let parts: Vec<String> = before.streams.keys().cloned().collect();
        for part in &parts {
            search.remove_runs(part);
        }
        for part in &parts {
            search.zero_runs(part);
            search.lower_each(part);
        }
        if search.best.script == before || search.is_over() {
            return search.best;
        }
    }
}

/// Returns the key by which failures are compared: the id of the violated invariant, if the message
/// contains one, or else the start of the message without numbers.
#[must_use]
pub fn head(error: &str) -> String {
    const WORDS: usize = 6;
    let first = error.lines().next().unwrap_or_default();
    let first = first.rsplit_once("` failed: ").map_or(first, |(_, what)| what);
    if let Some((id, _)) = first.split_once(':') {
        let digits = id.strip_prefix(['P', 'M', 'S']).filter(|digits| !digits.is_empty());
        if digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
            return id.to_owned();
        }
    }
    let words = first.split_whitespace().take(WORDS).map(|word| {
        let mut kept = String::new();
        for char in word.chars() {
            match char {
                '0'..='9' if kept.ends_with('#') => {}
                '0'..='9' => kept.push('#'),
                _ => kept.push(char),
            }
        }
        kept
    });
    words.collect::<Vec<_>>().join(" ")
}

struct Search<F> {
    best: Shrunk,
    wanted: String,
    limits: Limits,
    started: Instant,
    run: F,
}

impl<F: FnMut(&Script) -> Option<String>> Search<F> {
    fn is_over(&self) -> bool {
        self.best.runs >= self.limits.runs || self.started.elapsed() >= self.limits.time
    }

    /// Replaces the list of one part, if the run still fails in the same way.
    fn try_list(&mut self, part: &str, list: Vec<u32>) -> bool {
        if self.is_over() {
            return false;
        }
        self.best.runs += 1;
        let mut script = self.best.script.clone();
        script.streams.insert(part.to_owned(), list);
        match (self.run)(&script).filter(|error| head(error) == self.wanted) {
            Some(error) => {
                (self.best.script, self.best.error) = (script, error);
                true
            }
            None => false,
        }
    }

    fn list(&self, part: &str) -> Vec<u32> {
        self.best.script.streams.get(part).cloned().unwrap_or_default()
    }

    fn remove_runs(&mut self, part: &str) {
        // The end first: the decisions after an early failure were not drawn, and a scripted run
        // may not need them.
        let mut size = self.list(part).len();
        while size > 0 && !self.is_over() {
            let mut end = self.list(part).len();
            while end > 0 {
                let mut list = self.list(part);
                let start = end.saturating_sub(size);
                list.drain(start..end);
                self.try_list(part, list);
                end = start;
            }
            size /= 2;
        }
    }

    fn zero_runs(&mut self, part: &str) {
        let mut size = self.list(part).len();
        while size > 0 && !self.is_over() {
            let mut end = self.list(part).len();
            while end > 0 {
                let mut list = self.list(part);
                let start = end.saturating_sub(size);
                let run = &mut list[start..end];
                if run.iter().any(|value| *value != 0) {
                    run.fill(0);
                    self.try_list(part, list);
                }
                end = start;
            }
            size /= 2;
        }
    }

    fn lower_each(&mut self, part: &str) {
        for place in 0..self.list(part).len() {
            let mut low = 0;
            // Failing need not be monotonic in the length; a binary search is sufficient
            // nevertheless.
            while !self.is_over() {
                let mut list = self.list(part);
                if list[place] <= low {
                    break;
                }
                let middle = low + (list[place] - low) / 2;
                list[place] = middle;
                if !self.try_list(part, list) {
                    low = middle + 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
