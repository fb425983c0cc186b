//! Memory that is exhausted, and calls that are made too early or too often.

use super::*;
use crate::storage::tests::with_memory_for;
use crate::topology::tests::scarce::OnScarce;

/// Servers without memory for their slots are never checked. The others are, and a selection ends.
#[test]
fn selection_ends_without_memory_for_server_slots() {
    let mut unplaced = 0;
    for count in 0.. {
        let (scan, is_out) = with_memory_for(count, || {
            let options = TopologyOptions { seeds: &["a:1", "b:1"], ..TopologyOptions::default() }.validate().unwrap();
            Scan::<OnScarce>::new(
                Instant::ORIGIN,
                TopologyId::new(1),
                options,
                ScanOptions::DEFAULT.validate().unwrap(),
                &mut (),
            )
        });
        let Ok(mut scan) = scan else {
            assert!(is_out);
            continue;
        };
        let mut selecting = scan.begin(at_ms(1));
        let mut dialed = Vec::new();
        let error = loop {
            match scan.select(at_ms(1), &mut selecting, &WRITE, &[], 7, &mut ()) {
                Ok(ScanStep::Work) => {
                    let Some(ScanAction::Dial { socket, .. }) = scan.poll_action(at_ms(1)) else { panic!("a dial") };
                    scan.handle_failed(at_ms(1), socket, Cause::Network, &mut ()).expect("dialing");
                    dialed.push(socket.server());
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.failure(), SelectionFailure::TriedOnce);
        let placed: Vec<_> = scan
            .topology()
            .servers()
            .map(|server| server.server())
            .filter(|server| scan.link(*server).is_some())
            .collect();
        dialed.sort_unstable();
        assert_eq!(dialed, placed, "each of them once");
        unplaced += usize::from(placed.len() < 2);
        if !is_out {
            assert_eq!((unplaced, placed.len()), (2, 2), "for one place, and for both");
            return;
        }
    }
}

/// While a check is under way no other begins, and each of its actions is returned once.
#[test]
fn no_second_check_begins_during_a_check() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", PRIMARY);
    let mut selecting = rig.scan.begin(rig.time());
    let mut step = |rig: &mut Rig| rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 1, &mut rig.events);
    assert_eq!(step(&mut rig), Ok(ScanStep::Work));
    assert_eq!(step(&mut rig), Ok(ScanStep::Work));
    assert!(rig.scan.is_busy());
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    assert_eq!(rig.scan.poll_action(at_ms(0)), None, "once");
    assert_eq!(step(&mut rig), Ok(ScanStep::Work));
    rig.scan.assert_invariants();
    rig.scan.handle_failed(at_ms(0), socket, Cause::Network, &mut rig.events).expect("dialing");
    assert_eq!(rig.events.0.iter().filter(|event| event.starts_with("started")).count(), 1);
    assert!(step(&mut rig).is_err() && !rig.scan.is_busy());
}

/// A hang-up follows only if the host has taken the dial.
#[test]
fn close_hangs_up_a_polled_dial() {
    for is_told in [false, true] {
        let mut rig = Rig::set(&["a:1"]).with("a:1", PRIMARY);
        let mut selecting = rig.scan.begin(at_ms(0));
        let step = rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 1, &mut rig.events);
        assert_eq!(step, Ok(ScanStep::Work));
        let told = is_told.then(|| rig.scan.poll_action(at_ms(0)).expect("a dial"));
        rig.scan.close(at_ms(0), &mut rig.events);
        rig.scan.assert_invariants();
        let owed = match told {
            Some(ScanAction::Dial { socket, .. }) => Some(ScanAction::Hangup(socket)),
            _ => None,
        };
        assert_eq!(owed.is_some(), is_told);
        assert_eq!((rig.scan.poll_action(at_ms(0)), rig.scan.poll_action(at_ms(0))), (owed, None));
    }
}

/// Without a check in flight a failure has no effect; nor has a hang-up of a server that is no
/// member.
#[test]
fn failures_without_a_check_and_hang_ups_without_a_server_change_nothing() {
    let mut rig = healthy();
    let address = rig.operate(&WRITE);
    rig.work();
    let (events, scanned) = (rig.events.0.len(), rig.scan.last_scan());
    let now = rig.time();
    rig.scan.fail(now, Cause::Network, &mut rig.events);
    rig.scan.hang_up(ServerId::new(9));
    rig.scan.assert_invariants();
    assert_eq!((rig.scan.poll_action(now), rig.scan.last_scan(), rig.events.0.len()), (None, scanned, events));
    assert_eq!(rig.operate(&WRITE), address);
}
