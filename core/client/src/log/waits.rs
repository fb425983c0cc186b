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
    /// Their number since no operation waited.
    total: usize,
    /// How many of these have ended without a server.
    in_vain: usize,
    /// Whether one has found a server.
    has_found: bool,
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

    /// An operation waits no more. Returns the line for the end of all waits, if more than one had waited, one of
    /// them for long, and not all of them in vain: then the outage may go on.
    pub(super) fn end(&mut self, duration: Duration, is_selected: bool) -> Option<String> {
        self.now = self.now.saturating_sub(1);
        self.in_vain += usize::from(!is_selected);
        self.has_found |= is_selected;
        self.longest = self.longest.max(duration);
        if self.now > 0 {
            return None;
        }
        let Self { total, in_vain, has_found, longest, .. } = core::mem::take(self);
        if total < 2 || !has_found || longest < LONG {
            return None;
        }
        // Those that wait again count only if they wait with others.
        let total = total.max(in_vain + 1);
        let in_vain = if in_vain > 0 { format!(", {in_vain} in vain") } else { String::new() };
        Some(format!("operations wait for a server no more: {total} had waited{in_vain}, the longest {longest:.1?}"))
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
            assert_eq!(waits.end(Duration::from_secs(1), true), None);
        }
        let line = "operations wait for a server no more: 6 had waited, the longest 9.0s";
        assert_eq!(waits.end(Duration::from_secs(9), true).as_deref(), Some(line));
        assert_eq!(waits.begin(at(11), "write", false), Some(0), "a new outage");
        assert_eq!(waits.end(Duration::from_secs(9), true), None, "one operation needs no summary");
        assert_eq!((waits.begin(at(12), "write", false), waits.begin(at(12), "write", false)), (Some(0), None));
        assert_eq!(
            (waits.end(Duration::ZERO, true), waits.end(Duration::ZERO, true)),
            (None, None),
            "nor do short waits"
        );
        assert_eq!((waits.begin(at(13), "write", true), waits.begin(at(13), "write", true)), (None, None));
        assert_eq!(
            (waits.end(Duration::ZERO, true), waits.begin(at(13), "write", true)),
            (None, None),
            "the same outage"
        );
        assert_eq!(waits.end(Duration::from_secs(2), true), None);
        let line = "operations wait for a server no more: 2 had waited, the longest 2.0s";
        assert_eq!(waits.end(Duration::from_secs(1), true).as_deref(), Some(line), "those that wait again, too");
    }

    #[test]
    fn outage_in_which_all_wait_in_vain_has_no_end() {
        let mut waits = Waits::default();
        let begin = |waits: &mut Waits| waits.begin(Instant::ORIGIN, "write", false);
        let limit = Duration::from_secs(30);
        begin(&mut waits);
        begin(&mut waits);
        assert_eq!((waits.end(limit, false), waits.end(limit, false)), (None, None));
        begin(&mut waits);
        begin(&mut waits);
        assert_eq!(waits.end(limit, true), None);
        let line = "operations wait for a server no more: 2 had waited, 1 in vain, the longest 30.0s";
        assert_eq!(waits.end(limit, false).as_deref(), Some(line));
        begin(&mut waits);
        for _ in 0..2 {
            waits.begin(Instant::ORIGIN, "write", true);
            assert_eq!(waits.end(limit, false), None);
        }
        let line = "operations wait for a server no more: 3 had waited, 2 in vain, the longest 30.0s";
        assert_eq!(waits.end(limit, true).as_deref(), Some(line), "one has found a server");
    }
}
