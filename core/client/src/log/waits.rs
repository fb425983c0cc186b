//! The waits of many operations for a server, as few lines.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::Instant;

/// The time after which a further operation that waits has a message, while others wait.
const PERIOD: Duration = Duration::from_secs(10);

/// The shortest wait that is worth a line after its end. At the start of a client, all operations wait for
/// milliseconds.
const LONG: Duration = Duration::from_secs(1);

/// The maximum number of selectors that have messages in one outage: those of an application are few.
const SELECTORS_MAX: usize = 16;

/// The operations of a client that wait for a server.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Their number now.
    now: usize,
    /// Their number since all operations had a server.
    total: usize,
    longest: Duration,
    /// The selectors, and the times of their last messages, while operations wait.
    last: Vec<(String, Instant)>,
}

impl Waits {
    /// An operation begins to wait. Returns the number of the others that wait, if it has a message.
    ///
    /// - `again`: whether it has waited before.
    pub(super) fn begin(&mut self, now: Instant, selector: &str, again: bool) -> Option<usize> {
        let others = self.now;
        self.now += 1;
        // One that waits again may be the first of a further outage.
        self.total = (self.total + usize::from(!again)).max(self.now);
        if again {
            return None;
        }
        let is_full = self.last.len() == SELECTORS_MAX;
        match self.last.iter_mut().find(|(known, _)| known == selector) {
            Some((_, at)) if now.saturating_since(*at) < PERIOD => return None,
            Some((_, at)) => *at = now,
            None if is_full => return None,
            None => self.last.push((String::from(selector), now)),
        }
        Some(others)
    }

    /// An operation waits no more. Returns the line for the end of all waits, if more than one had waited, and
    /// one of them for long.
    pub(super) fn end(&mut self, duration: Duration) -> Option<String> {
        self.now = self.now.saturating_sub(1);
        self.longest = self.longest.max(duration);
        if self.now > 0 {
            return None;
        }
        let Self { total, longest, .. } = core::mem::take(self);
        (total > 1 && longest >= LONG)
            .then(|| format!("operations wait for a server no more: {total} had waited, the longest {longest:.1?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waits_are_few_lines() {
        let at = |seconds| Instant::ORIGIN.saturating_add(Duration::from_secs(seconds));
        let mut waits = Waits::default();
        assert_eq!(waits.begin(at(0), "write", false), Some(0));
        assert_eq!(waits.begin(at(0), "write", false), None);
        assert_eq!(waits.begin(at(0), "read", false), Some(2), "another selector");
        assert_eq!((waits.begin(at(1), "read", false), waits.begin(at(1), "write", false)), (None, None));
        assert_eq!(waits.begin(at(10), "read", false), Some(5), "after the period");
        for _ in 0..5 {
            assert_eq!(waits.end(Duration::from_secs(1)), None);
        }
        let line = "operations wait for a server no more: 6 had waited, the longest 9.0s";
        assert_eq!(waits.end(Duration::from_secs(9)).as_deref(), Some(line));
        assert_eq!(waits.begin(at(11), "write", false), Some(0), "a new outage");
        assert_eq!(waits.end(Duration::from_secs(9)), None, "one operation needs no summary");
        assert_eq!((waits.begin(at(12), "write", false), waits.begin(at(12), "write", false)), (Some(0), None));
        assert_eq!((waits.end(Duration::ZERO), waits.end(Duration::ZERO)), (None, None), "nor do short waits");
        assert_eq!((waits.begin(at(13), "write", true), waits.begin(at(13), "write", true)), (None, None));
        assert_eq!((waits.end(Duration::ZERO), waits.begin(at(13), "write", true)), (None, None), "the same outage");
        assert_eq!(waits.end(Duration::from_secs(2)), None);
        let line = "operations wait for a server no more: 2 had waited, the longest 2.0s";
        assert_eq!(waits.end(Duration::from_secs(1)).as_deref(), Some(line), "those that wait again, too");
    }
}
