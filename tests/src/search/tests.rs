use super::*;
use core::fmt::Write;
use expect_test::expect;

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

/// The complete figures of small scopes. They change with each check, and with each value that
/// decides whether two states are equal.
#[test]
fn small_scopes_have_these_states_and_checks() {
    let mut text = String::new();
    let mut run = |name: &str, run: &dyn Fn() -> Result<Figures, Stopped>| {
        let Figures { states, transitions, checks, .. } = run().expect("a complete search");
        let _ = writeln!(text, "{name}: {states} states, {transitions} transitions, {}", checks.json());
    };
    let pools = ["cancelled everywhere", "other options", "no subscriber"];
    for shape in pool::scopes().iter().filter(|shape| pools.contains(&shape.name)) {
        run(shape.name, &|| shape.run());
    }
    for shape in mux::scopes().iter().filter(|shape| shape.name == "a host that is down") {
        run(shape.name, &|| shape.run());
    }
    for shape in monitor::scopes().iter().filter(|shape| shape.name == "polling") {
        run(shape.name, &|| shape.run());
    }
    expect![[r#"
        other options: 1497 states, 9669 transitions, {"P1":20425,"P10":710,"P11":661,"P12":363,"P13":502,"P14":59,"P15":762,"P16":800,"P17":275,"P2":275,"P20":20425,"P24":1426,"P25":4921,"P26":1236,"P27":2893,"P28":765,"P29":25352,"P3":275,"P31":980,"P32":2173,"P34":66892,"P35":638,"P36":1665,"P37":280,"P38":281,"P39":3,"P4":102125,"P45":66892,"P46":316,"P47":17234,"P5":11867,"P6":275,"P8":3317,"P9":1276}
        cancelled everywhere: 850 states, 4558 transitions, {"P1":5339,"P10":119,"P11":643,"P12":237,"P13":1000,"P14":150,"P15":584,"P16":606,"P17":10,"P2":10,"P20":5339,"P25":3362,"P26":802,"P27":2119,"P28":585,"P29":8703,"P3":10,"P31":644,"P32":1776,"P34":15966,"P35":802,"P36":990,"P37":13,"P38":12,"P39":1,"P4":26695,"P45":15966,"P47":3437,"P5":998,"P6":10,"P8":2412,"P9":1604}
        no subscriber: 5152 states, 29111 transitions, {"P1":68684,"P10":2203,"P11":974,"P12":453,"P13":1966,"P14":192,"P15":2846,"P16":11314,"P17":652,"P2":652,"P20":68684,"P25":35740,"P26":1610,"P27":19375,"P28":3309,"P29":113154,"P3":652,"P31":8869,"P32":5853,"P33":3530,"P34":329432,"P35":3543,"P36":2803,"P37":656,"P38":1760,"P39":3670,"P4":343420,"P40":1115,"P42":14528,"P45":329432,"P47":55337,"P5":48334,"P6":652,"P8":11026,"P9":3220}
        a host that is down: 561 states, 1576 transitions, {"M1":81,"M2":144,"M4":20941,"M5":175,"M6":17194,"P1":3813,"P18":92,"P19":362,"P2":185,"P20":3813,"P25":81,"P32":129,"P6":185,"P8":154}
        polling: 953 states, 7704 transitions, {}
    "#]].assert_eq(&text);
}
