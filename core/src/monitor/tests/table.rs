use super::*;
use crate::monitor::link::Step;

/// The state of a monitor as one letter; lower case while the host has not taken the action of the
/// check connection.
fn place(monitor: &Monitor) -> char {
    let exchange = monitor.check.exchange();
    let letter = match (&monitor.phase, exchange.map(|exchange| exchange.step)) {
        (Phase::New, None) => 'N',
        (Phase::Waiting { .. }, None) => return if monitor.check.is_idle() { 'W' } else { 'w' },
        (Phase::Ended { .. }, None) => 'E',
        (Phase::Closed, None) => 'X',
        (Phase::Checking, Some(Step::Dial)) => 'D',
        (Phase::Checking, Some(Step::Hello(HelloKind::Handshake { .. }))) => 'H',
        (Phase::Checking, Some(Step::Hello(HelloKind::Poll { .. }))) => 'P',
        (Phase::Checking, Some(Step::Hello(HelloKind::Awaitable { .. }))) => 'A',
        (Phase::Checking, Some(Step::ReadNext)) => 'R',
        (phase, step) => panic!("an impossible place: {phase:?} {step:?}"),
    };
    let owed = exchange.is_some() && monitor.clone().check.take_hangup_and_action().is_some();
    if owed { letter.to_ascii_lowercase() } else { letter }
}

impl Link {
    /// Returns the action that the host would take on this connection, except a hang-up.
    fn take_hangup_and_action(&mut self) -> Option<MonitorAction> {
        self.take_hangup();
        self.take_action(Instant::ORIGIN)
    }
}

/// A monitor in the state of that letter, at 10,000 ms.
fn rig_at(letter: char) -> Rig {
    let mut rig = Rig::streaming();
    rig.at(10_000);
    match letter {
        'N' => {}
        'd' => rig.start(),
        'D' => {
            rig.start();
            rig.only_dial();
        }
        'h' => {
            rig.start();
            let conn = rig.only_dial();
            rig.dialed(conn).expect("current");
        }
        'H' => {
            rig.connect();
        }
        'w' => {
            let conn = rig.connect();
            rig.reply(conn, &REFUSED).expect("current");
            rig.settle();
        }
        'W' | 'p' | 'P' => {
            let conn = rig.at(0).connect();
            rig.reply(conn, &OK).expect("current");
            rig.settle();
            rig.at(5_000);
            if letter != 'W' {
                rig.at(10_000).timeout();
            }
        }
        'a' | 'A' | 'r' | 'R' => {
            let conn = rig.connect();
            rig.reply(conn, &VERSIONED).expect("current");
            rig.settle();
            if letter != 'a' {
                rig.actions();
            }
            if letter == 'r' || letter == 'R' {
                rig.reply(conn, &STREAMED).expect("current");
                rig.settle();
            }
        }
        'X' => {
            rig.start();
            rig.close();
        }
        other => panic!("no place {other}"),
    }
    if letter.is_ascii_uppercase() {
        rig.actions();
    }
    assert_eq!(place(&rig.monitor), letter);
    rig
}

const INPUTS: [&str; 12] = [
    "start",
    "request",
    "cancel",
    "close",
    "dialed",
    "reply",
    "versioned",
    "streamed",
    "refused",
    "failed",
    "early",
    "due",
];

/// Applies one input and its outcome. Returns the state after that, preceded by `!` if the input
/// was stale.
fn outcome_of(rig: &mut Rig, input: &str) -> heapless::String<2> {
    let nobody = MonitorConnId { serial: core::num::NonZeroU64::MAX, kind: MonitorConnKind::Check };
    let conn = rig.monitor.check.conn().map_or(nobody, |conn| conn.id);
    let mut result = Ok(());
    match input {
        "start" => rig.start(),
        "request" => rig.monitor.request_check(rig.now),
        "cancel" => rig.cancel(),
        "close" => rig.close(),
        "dialed" => result = rig.dialed(conn),
        "reply" => result = rig.reply(conn, &OK),
        "versioned" => result = rig.reply(conn, &VERSIONED),
        "streamed" => result = rig.reply(conn, &STREAMED),
        "refused" => result = rig.reply(conn, &REFUSED),
        "failed" => result = rig.fail(conn, Cause::Network),
        "early" => {
            rig.now = rig.due().map_or(at(10_001), |due| Instant::from_nanos(due.as_nanos() - 1));
            rig.timeout();
        }
        "due" => rig.at(3_600_000).timeout(),
        other => panic!("no input {other}"),
    }
    rig.settle();
    rig.monitor.assert_invariants();
    let mut text = heapless::String::new();
    if result.is_err() {
        text.push('!').expect("fits");
    }
    text.push(place(&rig.monitor)).expect("fits");
    text
}

#[test]
fn every_input_in_every_state_follows_the_table() {
    #[rustfmt::skip]
    let table: [(char, [&str; 12]); 14] = [
        //     start req  canc clos dialed reply  vers   strm   refus  failed early due
        ('N', ["d", "N", "N", "X", "!N",  "!N",  "!N",  "!N",  "!N",  "!N",  "N",  "N"]),
        ('w', ["w", "w", "w", "X", "!w",  "!w",  "!w",  "!w",  "!w",  "!w",  "w",  "d"]),
        ('W', ["W", "W", "w", "X", "!W",  "w",   "w",   "w",   "w",   "w",   "W",  "p"]),
        ('d', ["d", "d", "w", "X", "!d",  "!d",  "!d",  "!d",  "!d",  "!d",  "d",  "w"]),
        ('D', ["D", "D", "w", "X", "h",   "w",   "w",   "w",   "w",   "w",   "D",  "w"]),
        ('h', ["h", "h", "w", "X", "!h",  "w",   "w",   "w",   "w",   "w",   "h",  "w"]),
        ('H', ["H", "H", "w", "X", "!H",  "W",   "a",   "w",   "w",   "w",   "H",  "w"]),
        ('p', ["p", "p", "w", "X", "!p",  "w",   "w",   "w",   "w",   "d",   "p",  "d"]),
        ('P', ["P", "P", "w", "X", "!P",  "W",   "a",   "w",   "w",   "d",   "P",  "d"]),
        ('a', ["a", "a", "w", "X", "!a",  "w",   "w",   "w",   "w",   "d",   "a",  "d"]),
        ('A', ["A", "A", "w", "X", "!A",  "W",   "a",   "r",   "w",   "d",   "A",  "d"]),
        ('r', ["r", "r", "w", "X", "!r",  "w",   "w",   "w",   "w",   "d",   "r",  "d"]),
        ('R', ["R", "R", "w", "X", "!R",  "W",   "a",   "r",   "w",   "d",   "R",  "d"]),
        ('X', ["X", "X", "X", "X", "!X",  "!X",  "!X",  "!X",  "!X",  "!X",  "X",  "X"]),
    ];
    for (from, row) in table {
        for (input, expected) in INPUTS.into_iter().zip(row) {
            let mut rig = rig_at(from);
            assert_eq!(outcome_of(&mut rig, input).as_str(), expected, "{input} in {from}");
        }
    }
}

#[test]
fn commands_while_an_outcome_is_applied_leave_it_or_end_it() {
    for (input, expected) in [("start", 'E'), ("request", 'E'), ("cancel", 'E'), ("close", 'X')] {
        let mut rig = Rig::streaming();
        let conn = rig.connect();
        rig.reply(conn, &VERSIONED).expect("current");
        match input {
            "start" => rig.start(),
            "request" => rig.monitor.request_check(rig.now),
            "cancel" => rig.cancel(),
            _ => rig.close(),
        }
        assert_eq!(place(&rig.monitor), expected, "{input}");
        rig.settle();
    }
}

#[test]
#[doc(alias = "MON-43")]
fn the_rtt_connection_accepts_every_input() {
    // The RTT connection being dialed, its handshake sent, and idle between two measurements.
    for stage in 0..3 {
        for input in ["dialed", "reply", "refused", "streamed", "failed", "due"] {
            let mut rig = Rig::streaming_from_the_start();
            let conn = rig.monitor.ping.conn().expect("dialing").id;
            if stage > 0 {
                rig.dialed(conn).expect("current");
                rig.actions();
            }
            if stage > 1 {
                rig.reply(conn, &OK).expect("current");
            }
            let result = match input {
                "dialed" => rig.dialed(conn),
                "reply" => rig.reply(conn, &OK),
                "refused" => rig.reply(conn, &REFUSED),
                "streamed" => rig.reply(conn, &STREAMED),
                "failed" => rig.fail(conn, Cause::Network),
                _ => {
                    rig.at(10_000).timeout();
                    Ok(())
                }
            };
            assert_eq!(result.is_err(), input == "dialed" && stage > 0, "{input} at stage {stage}");
            assert_eq!(rig.outcome, None, "MON-43: {input} at stage {stage}");
            assert!(rig.monitor.is_streaming());
            let stays = matches!((stage, input), (_, "dialed") | (1, "reply") | (2, "due"));
            assert_eq!(!rig.monitor.ping.is_down(), stays, "{input} at stage {stage}");
        }
    }
}

/// A dial is under way only after the host has taken it.
#[test]
fn dial_is_in_progress_after_the_host_has_polled_it() {
    let mut rig = Rig::streaming();
    rig.start();
    let conn = &rig.monitor.check;
    assert!(conn.owes() && !conn.is_dialing() && !conn.is_idle() && !conn.is_down());
    assert!(matches!(rig.actions()[..], [MonitorAction::Dial(_)]));
    let conn = &rig.monitor.check;
    assert!(!conn.owes() && conn.is_dialing() && !conn.is_idle() && !conn.is_down());
}
