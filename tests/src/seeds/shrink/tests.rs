use super::{Limits, head, shrink};
use crate::choices::{Choices, Decisions, Script, Stream};
use crate::seeds::caught;
use core::time::Duration;

const ENDLESS: Limits = Limits { runs: 5_000, time: Duration::MAX };

/// A planted bug: a run that adds numbers fails when the sum exceeds a hundred and the switch of
/// the other part was on once.
fn body(of: &Decisions) -> Result<(), String> {
    let (mut numbers, mut switches): (Stream, Stream) = (of.stream("numbers"), of.stream("switches"));
    caught(|| {
        let (mut sum, mut is_on) = (0, false);
        for step in 0..numbers.below(200) {
            if numbers.is_over() {
                break;
            }
            sum += numbers.below(40);
            is_on |= switches.one_in(2);
            assert!(!is_on || sum <= 100, "P2: {sum} after {step} steps");
            assert!(sum < 100_000, "never");
        }
    })
}

#[test]
#[doc(alias = "P2")]
fn failing_run_is_shrunk_to_the_decisions_that_it_needs() {
    let seed = (0..).find(|seed| body(&Decisions::of_seed(*seed)).is_err()).expect("most fail");
    let recorded = Decisions::recorded(seed);
    let error = body(&recorded).expect_err("as before");
    let script = recorded.script();
    let shrunk = shrink(script.clone(), error, ENDLESS, |script| body(&Decisions::scripted(script.clone())).err());
    // Three numbers of at most 39 can reach 101; the switch needs one decision.
    assert!(shrunk.script.len() <= 5, "{} of {}", shrunk.script, script.len());
    assert!(shrunk.error.starts_with("P2: 101 "), "{}", shrunk.error);
    assert_eq!(body(&Decisions::scripted(shrunk.script)), Err(shrunk.error));
}

#[test]
#[doc(alias("P9", "P10"))]
fn run_is_not_shrunk_to_another_failure() {
    let script = Script { seed: 1, streams: [("a".to_owned(), vec![3, 9, 9])].into() };
    let run = |script: &Script| match script.streams["a"].as_slice() {
        [first, ..] if *first >= 3 => Some("P9: one".to_owned()),
        _ => Some("P10: another".to_owned()),
    };
    let shrunk = shrink(script, "P9: one".to_owned(), ENDLESS, run);
    assert_eq!(shrunk.script.streams["a"], [3]);
}

#[test]
#[doc(alias = "P1")]
fn shrinking_ends_at_its_limits_of_time_and_runs() {
    let script = Script { seed: 1, streams: [("a".to_owned(), vec![9; 100])].into() };
    let spend = |limits| shrink(script.clone(), "P1: any".to_owned(), limits, |_| None);
    let none = spend(Limits { runs: 5_000, time: Duration::ZERO });
    assert_eq!((none.runs, none.script), (0, script.clone()));
    assert_eq!(spend(Limits { runs: 3, time: Duration::MAX }).runs, 3);
}

#[test]
fn script_is_its_text() {
    let script = Script { seed: 7, streams: [("b".to_owned(), vec![1, 0]), ("a".to_owned(), vec![4])].into() };
    let text = script.to_string();
    assert_eq!(text, "7: a 4; b 1 0");
    assert_eq!(text.parse(), Ok(script));
    assert!("7 a 4".parse::<Script>().is_err());
    assert!("7: a x".parse::<Script>().is_err());
}

#[test]
fn recorded_run_is_replayed_from_its_script() {
    let (recorded, plain) = (Decisions::recorded(5), Decisions::of_seed(5));
    let draw = |of: &Decisions| {
        let mut stream = of.stream("part");
        (0..50).map(|bound| stream.below(bound + 1)).collect::<Vec<_>>()
    };
    let values = draw(&recorded);
    assert_eq!(values, draw(&plain));
    assert_eq!(values, draw(&Decisions::scripted(recorded.script())));
    assert_eq!(recorded.script().len(), 50);
}

#[test]
#[doc(alias = "P10")]
fn heads_are_ids_or_words_without_numbers() {
    assert_eq!(head("P10: 3 wait"), "P10");
    assert_eq!(head("assertion `left == right` failed: 17 of n3 left\n  left: 1"), "# of n# left");
    assert_eq!(head("P: odd"), "P: odd");
}
