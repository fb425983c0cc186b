//! Runs in which one output of a machine is falsified once, and what their checks report. The
//! verdicts are pinned: a check that is lost, weakened or renamed changes them.

use crate::choices::Choices;
use crate::fuzz::Body;
use crate::rng::Rng;
use crate::seeds::caught;
use alloc::collections::BTreeMap;
use core::cell::RefCell;
use core::fmt::Write;
use core::time::Duration;
use poolhouse_core::Instant;

/// A way to falsify the outputs of a step: its name, and a function that returns whether there was
/// such an output.
pub(in crate::oracle) type Kind<S> = (&'static str, fn(&mut S, &mut Rng) -> bool);

struct Plan {
    /// Number of steps before the one that may be falsified.
    steps: u32,
    rng: Rng,
    /// Draws the kind.
    draw: u32,
    applied: Option<&'static str>,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Falsifies the outputs of a step if that is due. Called before each step is judged.
pub(in crate::oracle) fn step<S>(outputs: &mut S, kinds: &[Kind<S>]) {
    PLAN.with_borrow_mut(|plan| {
        let Some(plan) = plan.as_mut().filter(|plan| plan.applied.is_none()) else { return };
        if plan.steps > 0 {
            plan.steps -= 1;
            return;
        }
        let (name, falsify) = kinds[plan.draw as usize % kinds.len()];
        plan.applied = falsify(outputs, &mut plan.rng).then_some(name);
    });
}

/// For each kind of falsification, which invariants its runs break, and how many runs break none.
pub(in crate::oracle) fn verdicts(runs: u32, bytes: u32, body: Body) -> String {
    let mut verdicts: BTreeMap<&str, BTreeMap<String, u32>> = BTreeMap::new();
    for draw in 0..runs {
        let mut rng = Rng::stream(u64::from(draw), "falsified");
        let data: Vec<u8> = (0..bytes).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        PLAN.set(Some(Plan { steps: rng.below(bytes / 8), rng, draw, applied: None }));
        let judged = caught(|| body(&data));
        // A run may end before such an output.
        if let Some(applied) = PLAN.take().and_then(|plan| plan.applied) {
            let verdict = judged.map_or_else(|error| id_in(&error), |()| "nothing".to_owned());
            *verdicts.entry(applied).or_default().entry(verdict).or_default() += 1;
        }
    }
    let mut text = String::new();
    for (kind, verdicts) in verdicts {
        let verdicts: Vec<_> = verdicts.iter().map(|(id, times)| format!("{id} {times}")).collect();
        let _ = writeln!(text, "{kind}: {}", verdicts.join(", "));
    }
    text
}

/// The first id of an invariant in an error.
fn id_in(error: &str) -> String {
    let is_id = |word: &&str| {
        let number = word.strip_prefix(['P', 'M', 'S']);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut words = error.split(|letter: char| !letter.is_alphanumeric());
    words.find(is_id).unwrap_or("an assertion").to_owned()
}

/// Replaces a value. Returns whether it was another.
pub(in crate::oracle) fn change<T: PartialEq>(value: &mut T, other: T) -> bool {
    core::mem::replace(value, other) != *value
}

/// Negates a value.
pub(in crate::oracle) const fn flip(value: &mut bool) -> bool {
    *value = !*value;
    true
}

/// Increases a number.
pub(in crate::oracle) const fn next(number: &mut u64) -> bool {
    *number += 1;
    true
}

/// Removes one event.
pub(in crate::oracle) fn missing<E>(events: &mut Vec<E>, rng: &mut Rng) -> bool {
    !events.is_empty() && {
        events.remove(rng.index(events.len()));
        true
    }
}

/// Emits one event again.
pub(in crate::oracle) fn twice<E: Copy>(events: &mut Vec<E>, rng: &mut Rng) -> bool {
    !events.is_empty() && {
        events.push(events[rng.index(events.len())]);
        true
    }
}

/// Emits the events in the opposite order.
pub(in crate::oracle) fn reversed<E: Copy + PartialEq>(events: &mut [E]) -> bool {
    let (first, last) = (events.first().copied(), events.last().copied());
    events.reverse();
    first != last
}

/// Emits the last event at another time.
pub(in crate::oracle) fn at_another_time<E>(events: &mut [(Instant, E)], rng: &mut Rng) -> bool {
    let (earlier, later) = (rng.one_in(2), Duration::from_millis(1));
    events.last_mut().is_some_and(|(at, _)| {
        let other = if earlier { Instant::from_nanos(at.as_nanos() - 1) } else { at.saturating_add(later) };
        change(at, other)
    })
}
