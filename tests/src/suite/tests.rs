use core::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Conclusion};

use super::Suite;

fn run(suite: Suite, ci: bool) -> Conclusion {
    // The output of a suite under test must not appear in the output of this target.
    let logfile = Some("/dev/null".to_owned());
    let arguments = Arguments { quiet: true, test_threads: Some(1), logfile, ..Arguments::default() };
    libtest_mimic::run(&arguments, suite.into_trials(ci))
}

fn counting(counter: &'static AtomicUsize) -> impl FnOnce() + Send + 'static {
    move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn cases_run_and_are_counted() {
    static COUNTER: AtomicUsize = AtomicUsize::new(0);
    let suite = Suite::new("sample")
        .skip_if(None::<String>)
        .case("returns_unit", counting(&COUNTER))
        .case("returns_error", || Err::<(), _>("refused"))
        .case("panics", || assert_eq!(1, 2, "a deliberate panic"));
    let conclusion = run(suite, false);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (1, 2, 0));
    assert_eq!(COUNTER.load(Ordering::Relaxed), 1);
}

#[test]
fn skipped_suite_ignores_every_case_and_reports_the_reason() {
    static COUNTER: AtomicUsize = AtomicUsize::new(0);
    let suite = Suite::new("mongod")
        .skip_if(Some("no mongod"))
        .skip_if(Some("a later reason"))
        .case("one", counting(&COUNTER))
        .case("two", counting(&COUNTER));
    assert_eq!(suite.notices(), ["skipped: mongod suite: no mongod"]);
    let conclusion = run(suite, false);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (0, 0, 2));
    assert_eq!(COUNTER.load(Ordering::Relaxed), 0);
}

#[test]
fn skipped_suite_fails_in_ci() {
    let suite = Suite::new("mongod").skip_if(Some("no mongod")).case("one", || ());
    let conclusion = run(suite, true);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (0, 1, 0));
}

#[test]
fn suite_that_found_no_case_fails_but_is_ignored_when_skipped() {
    let conclusion = run(Suite::new("cmap"), false);
    assert_eq!((conclusion.num_failed, conclusion.num_ignored), (1, 0));
    let conclusion = run(Suite::new("cmap").skip_if(Some("no files")), false);
    assert_eq!((conclusion.num_failed, conclusion.num_ignored), (0, 1));
    let conclusion = run(Suite::new("cmap").skip_if(Some("no files")), true);
    assert_eq!((conclusion.num_failed, conclusion.num_ignored), (1, 0));
}

#[test]
fn missing_part_is_an_ignored_case_and_fails_in_ci() {
    let suite = || Suite::new("uri").missing("auth", "no folder").case("one", || ()).left_out("options", "never here");
    assert_eq!(suite().notices(), ["skipped: uri/auth: no folder", "skipped: uri/options: never here"]);
    let conclusion = run(suite(), false);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (1, 0, 2));
    let conclusion = run(suite(), true);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (1, 1, 1));
}

#[test]
fn suite_of_missing_parts_only_has_passed_nothing() {
    let suite = || Suite::new("uri").missing("auth", "no folder").missing("options", "none either");
    let conclusion = run(suite(), false);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (0, 0, 2));
    let conclusion = run(suite(), true);
    assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (0, 2, 0));
}

#[test]
fn case_that_measures_time_runs_alone() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let beside = || {
        COUNT.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        COUNT.fetch_sub(1, Ordering::SeqCst);
    };
    let alone = || (0..1_000).for_each(|_| assert_eq!(COUNT.load(Ordering::SeqCst), 0, "another case runs"));
    let suite = (0..200).fold(Suite::new("suite"), |suite, number| suite.case(format!("beside {number}"), beside));
    let suite = suite.case("alone", alone).alone("alone");
    let suite = (200..400).fold(suite, |suite, number| suite.case(format!("beside {number}"), beside));
    let logfile = Some("/dev/null".to_owned());
    let arguments = Arguments { quiet: true, test_threads: Some(8), logfile, ..Arguments::default() };
    assert!(!libtest_mimic::run(&arguments, suite.into_trials(false)).has_failed());
}
