//! What is left of a life that fails when everything is taken away that it fails without.

use crate::choices::Script;
use core::time::Duration;
use std::time::Instant;

/// A life that was made smaller, and how it fails now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// Its decisions.
    pub script: Script,
    /// What it fails with.
    pub error: String,
    /// How many lives that took.
    pub lives: u32,
}

/// How much may be spent on a life that is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many lives are lived besides.
    pub lives: u32,
    /// No other is begun after so long.
    pub time: Duration,
}

impl Limits {
    /// What is spent on one that failed in a test.
    pub const DEFAULT: Self = Self { lives: 4_000, time: Duration::from_secs(20) };
}

/// Makes a life that fails smaller for as long as it fails in the same way, which [`head`] tells (delta debugging).
///
/// Decisions are left out in runs, the long ones first, then made zero, then smaller one by one; again until nothing helps.
///
/// - `error`: what the life fails with. - `limits`: when that ends at the latest. - `live`: lives one; `None` when it does not fail.
pub fn shrink(script: Script, error: String, limits: Limits, live: impl FnMut(&Script) -> Option<String>) -> Shrunk {
    let wanted = head(&error);
    let started = Instant::now();
    let mut search = Search { best: Shrunk { script, error, lives: 0 }, wanted, limits, started, live };
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

/// What makes two failures the same: the id of the invariant that is broken, if one is named, or else how the message begins, without
/// the numbers in it.
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
    live: F,
}

impl<F: FnMut(&Script) -> Option<String>> Search<F> {
    fn is_over(&self) -> bool {
        self.best.lives >= self.limits.lives || self.started.elapsed() >= self.limits.time
    }

    /// Takes another list for one part, if the life still fails in the same way.
    fn try_list(&mut self, part: &str, list: Vec<u32>) -> bool {
        if self.is_over() {
            return false;
        }
        self.best.lives += 1;
        let mut script = self.best.script.clone();
        script.streams.insert(part.to_owned(), list);
        match (self.live)(&script).filter(|error| head(error) == self.wanted) {
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
        // The end first: a life that failed early has drawn nothing after that, and one that is scripted may do without.
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
            // Whether it fails with less need not follow from more: good enough for a search by halves.
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
