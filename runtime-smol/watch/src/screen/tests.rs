use super::*;
use crate::state::{CASSANDRA, DemoState, Resized, Totals};
use core::time::Duration;

fn server(address: &str, kind: &str, health: Health, counts: &[u32]) -> Server {
    Server {
        address: address.to_owned(),
        kind: kind.to_owned(),
        health,
        detail: Some("0.12 ms".to_owned()),
        counts: counts.to_vec(),
        bar_max: 10,
    }
}

/// A set with a primary at its limit and a frozen secondary.
fn state() -> State {
    let mut state = State {
        time: Duration::from_secs(75),
        demo: Some(DemoState {
            frozen: Some("127.0.0.1:40003".to_owned()),
            commands: ["fail over".to_owned(), "thaw 127.0.0.1:40003".to_owned()],
        }),
        totals: Totals { succeeded: 1_234_567, other: 3, failed: 2 },
        servers: vec![
            server("127.0.0.1:40001", "RSPrimary", Health::Good, &[5, 2, 1, 54]),
            server("127.0.0.1:40002", "RSSecondary", Health::Plain, &[0, 0, 0, 0]),
            server("127.0.0.1:40003", "RSSecondary", Health::Plain, &[0, 0, 0, 0]),
        ],
        ..State::default()
    };
    for rate in [0, 1000, 40_000, 80_000] {
        state.add_sample(Sample { rate, p50_us: 300, p99_us: 900, failover: false });
    }
    for second in 0..30 {
        state.add_event(Duration::from_secs(second), Kind::Other, format!("event {second}"));
    }
    state
}

/// Hosts of a session: one has more requests than its connections take, another is down.
fn hosts() -> State {
    State {
        words: &CASSANDRA,
        resized: Some(Resized { opened: 9, grown: 6, trashed: 4, resurrected: 3 }),
        servers: vec![
            server("127.0.0.1:9042", "v5 datacenter1", Health::Good, &[8, 1, 3, 2, 1, 1]),
            server("127.0.0.2:9042", "down datacenter1", Health::Out, &[0, 0, 0, 0, 1, 0]),
        ],
        ..state()
    }
}

fn text(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| line.0.iter().map(|(_, text)| text.as_str()).collect()).collect()
}

#[test]
fn screen_of_eighty_columns_has_everything() {
    let shown = text(&frame(&state(), 80, 24));
    assert_eq!(shown.len(), 24);
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    assert_eq!(shown[0], "Poolhouse  1:15  fake replica set in this process");
    assert_eq!(shown[2], format!("throughput  {:>54}{:>14}", " ▁▄█", "80,000/s"));
    assert_eq!(shown[3], format!("latency p50 {:>54}{:>14}", "████", "300 us"));
    assert_eq!(shown[4], format!("latency p99 {:>54}{:>14}", "████", "900 us"));
    assert_eq!(shown[5], "operations  1,234,567 succeeded, 3 retried, 2 failed");
    assert!(
        shown[7].starts_with("server ") && shown[7].ends_with("RTT pool           use  idle   new  wait"),
        "{shown:#?}"
    );
    assert_eq!(shown[23], " f  fail over   z  thaw 127.0.0.1:40003   q  quit");
    assert!(shown[22].ends_with("29.000 event 29"), "{:?}", shown[22]);
}

#[test]
fn pool_is_a_bar_of_connections_in_use_idle_and_being_established() {
    let shown = text(&frame(&state(), 120, 24));
    let row = &shown[8];
    assert!(row.contains("127.0.0.1:40001") && row.contains("RSPrimary") && row.contains("0.12ms"), "{row}");
    let cells = |character| row.chars().filter(|one| *one == character).count();
    let (used, idle, new, room) = (cells('█'), cells('▒'), cells('░'), cells('·'));
    let width = used + idle + new + room;
    assert!(width > 40, "{row}");
    assert_eq!((used, used + idle, used + idle + new), (width / 2, width * 7 / 10, width * 8 / 10), "{row}");
    assert!(row.ends_with("    5     2     1    54"), "{row}");
    assert!(shown[10].contains("frozen"), "{}", shown[10]);
}

#[test]
fn narrow_screen_leaves_out_round_trips_and_then_bars() {
    let shown = text(&frame(&state(), 70, 24));
    assert!(shown.iter().all(|line| line.chars().count() <= 70), "{shown:#?}");
    assert!(shown[8].contains('█') && !shown[8].contains("ms"), "{}", shown[8]);
    let shown = text(&frame(&state(), 58, 24));
    assert!(!shown[8].contains('█') && shown[8].ends_with("   54"), "{}", shown[8]);
}

#[test]
fn hosts_have_requests_as_a_bar_and_connections() {
    // A terminal of 80 columns leaves the last one empty.
    let shown = text(&frame(&hosts(), 79, 24));
    assert_eq!(shown[0], "Poolhouse  1:15  fake Cassandra nodes in this process");
    assert_eq!(shown[5], "operations  1,234,567 succeeded, 3 cancelled, 2 failed");
    assert_eq!(shown[6], "connections 9 opened, 6 of them for load; 4 trashed, 3 resurrected");
    let counts = ["sent", "late", "queue", "open", "new", "trash"].map(|title| format!("{title:>5}")).join(" ");
    assert_eq!(shown[8], format!("{:<22}{:<15}{:<6} {counts}", "server", "version, DC", "load"));
    assert_eq!(shown[9], format!("{:<22}v5 datacenter1 ████░░     8     1     3     2     1     1", "127.0.0.1:9042"));
    assert!(shown[10].starts_with("127.0.0.2:9042        down datacente ······ "), "{}", shown[10]);
}

#[test]
fn line_has_the_counts_of_each_host() {
    assert_eq!(
        hosts().line(),
        "  75.0 s  80000 operations/s, p50 300 us, p99 900 us; succeeded 1234567, cancelled 3, failed 2; \
         connections: 9 opened, 6 of them for load; 4 trashed, 3 resurrected \
         | 127.0.0.1:9042 v5 datacenter1 8/1/3/2/1/1 | 127.0.0.2:9042 down datacenter1 0/0/0/0/1/0"
    );
}

#[test]
fn frame_fits_every_size() {
    for state in [state(), hosts()] {
        for columns in 0..140 {
            for lines in 0..40 {
                let shown = text(&frame(&state, columns, lines));
                assert_eq!(shown.len(), lines);
                assert!(shown.iter().all(|line| line.chars().count() <= columns), "{columns} x {lines}: {shown:#?}");
            }
        }
    }
}

#[test]
fn servers_that_are_not_in_the_process_have_no_keys_but_quit() {
    let shown = text(&frame(&State { demo: None, ..state() }, 80, 24));
    assert_eq!(shown[23], " q  quit");
}

#[test]
fn text_from_servers_cannot_move_the_cursor() {
    let mut state = state();
    state.add_event(Duration::from_secs(60), Kind::Failure, "\x1b[2J\x07bell\u{9b}".to_owned());
    let shown = text(&frame(&state, 80, 24));
    assert_eq!(shown[22], "  60.000 ?[2J?bell?");
}

#[test]
fn sparkline_is_relative_to_the_highest_value() {
    assert_eq!(sparkline(&[0, 1, 8, 4]), " ▁█▄");
    assert_eq!(sparkline(&[0, 0]), "  ");
    assert_eq!(sparkline(&[u64::MAX, 1]), "█▁");
}

#[test]
fn numbers_have_commas() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}

#[test]
fn cause_is_shown_before_its_effect_that_was_recorded_first() {
    let mut state = State::default();
    state.add_event(Duration::from_millis(7), Kind::Failure, "effect".to_owned());
    state.add_event(Duration::from_millis(5), Kind::Done, "cause".to_owned());
    let shown = text(&frame(&state, 80, 24));
    let place = |text: &str| shown.iter().position(|line| line.ends_with(text));
    assert!(place("cause") < place("effect") && place("cause").is_some(), "{shown:#?}");
}
