use super::*;

/// Two counters from 0 to 3, the first of which can be reset; with `broken` the state 3, 2 fails.
struct Counters {
    broken: bool,
    /// Unequal states count as equal.
    blind: bool,
}

impl Scope for Counters {
    type State = [u8; 2];
    type Input = &'static str;

    fn start(&self) -> [u8; 2] {
        [0, 0]
    }

    fn inputs(&self, _state: &[u8; 2], inputs: &mut Vec<&'static str>) {
        inputs.extend(["left", "right", "back"]);
    }

    fn step(&self, state: &mut [u8; 2], input: &'static str) {
        match input {
            "left" => state[0] = (state[0] + 1).min(3),
            "right" => state[1] = (state[1] + 1).min(3),
            _ => state[0] = 0,
        }
        assert!(!self.broken || *state != [3, 2], "three and two");
    }

    fn print(&self, state: &[u8; 2]) -> u128 {
        let [left, right] = state.map(u128::from);
        if self.blind && left > 0 { 1 << 64 | right } else { left << 64 | right }
    }

    fn marks(&self, state: &[u8; 2]) -> u64 {
        u64::from(*state == [3, 3])
    }

    fn take_checks(&self, state: &mut [u8; 2]) -> Option<Checks> {
        let mut checks = Checks::default();
        if *state == [3, 3] {
            checks.add("P1");
        }
        Some(checks)
    }

    fn reaches(&self) -> Vec<(u64, &'static str)> {
        vec![(1, "three and three"), (2, "the impossible")].into_iter().take(if self.blind { 2 } else { 1 }).collect()
    }

    fn end(&self, state: [u8; 2]) {
        assert!(state[0] < 4);
    }
}

#[test]
#[doc(alias = "P1")]
fn every_state_is_reached_and_counted() {
    let figures = search(&Counters { broken: false, blind: false }, Limits::all(16)).expect("nothing is wrong");
    assert_eq!((figures.states, figures.transitions, figures.depth, figures.complete), (16, 48, 6, true));
    assert_eq!(figures.checks.of("P1"), 4, "left and right of there, and the last step from either side");
}

#[test]
fn failure_is_reported_with_the_shortest_path() {
    let error = search(&Counters { broken: true, blind: false }, Limits::all(16))
        .expect_err("the connection is broken")
        .to_string();
    assert!(error.starts_with("5 inputs:\n"), "{error}");
    assert!(error.ends_with("three and two"), "{error}");
}

#[test]
fn state_limit_is_an_error_and_depth_limit_is_reported() {
    let scope = Counters { broken: false, blind: false };
    let error = search(&scope, Limits::all(15)).expect_err("there are 16");
    assert_eq!(error, Stopped::Limit(15));
    let depth = Limits { depth: Some(6), ..Limits::all(16) };
    assert!(
        !search(&scope, depth).expect("as deep as it is").complete,
        "the states at the depth limit were not expanded"
    );
    let error = search(&scope, Limits { depth: Some(5), ..depth }).expect_err("it is too far").to_string();
    assert!(error.ends_with("did not reach: three and three"), "{error}");
}

#[test]
fn different_states_that_count_as_equal_are_detected() {
    let mut search = Search {
        scope: &Counters { broken: false, blind: true },
        limits: Limits::all(16),
        seen: HashMap::default(),
        from: Vec::new(),
        transitions: 0,
        again: 0,
        marks: 0,
        checks: Checks::default(),
    };
    let print = |state| search.scope.print(&state);
    let (start, one, two) = (print([0, 0]), print([1, 0]), print([2, 1]));
    let _start = search.enter(start, 0, None);
    let _one = search.enter(one, 0, Some("left"));
    assert_eq!(search.compare(&[2, 0], one, 0, "left"), Ok(()), "the successors of the two states are equal");
    let _two = search.enter(two, 1, Some("right"));
    let error = search.compare(&[0, 1], two, 0, "right").expect_err("not the same").to_string();
    assert!(error.contains("two different states count as equal"), "{error}");
}
