use super::*;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % count
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("small")]
    }
}

const OTHERS: &[&str] = &["b:1", "d:1"];

const KINDS: [Is; 12] = [
    Is::Refusing,
    Is::Resetting,
    Is::Silent,
    Is::Failing(1, false),
    Is::Failing(462, true),
    PRIMARY,
    PRIMARY,
    SECONDARY,
    SECONDARY,
    Is::Good(ServerType::RsPrimary, OTHERS, None),
    Is::Good(ServerType::RsSecondary, OTHERS, Some("d:1")),
    MONGOS,
];

/// Every heartbeat that began has ended.
fn assert_paired(rig: &mut Rig) {
    let count = |what: &str| rig.events.0.iter().filter(|event| event.starts_with(what)).count();
    assert_eq!(count("started"), count("succeeded") + count("failed"), "heartbeats are paired (LOG-11)");
    rig.events.0.clear();
    rig.log.clear();
}

fn run(seed: u64) -> (u32, u32) {
    let mut random = Random(seed);
    let try_once = random.below(2) == 0;
    let options = ScanOptions {
        server_selection_try_once: try_once,
        server_selection_timeout: Duration::from_millis(random.pick(&[0, 400, 1_700])),
        ..ScanOptions::DEFAULT
    };
    let topology = match random.below(4) {
        0 => TopologyOptions { load_balanced: true, ..TopologyOptions::default() },
        1 => TopologyOptions::default(),
        _ => TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() },
    };
    let seeds = if topology.load_balanced { &SET[..1] } else { SET };
    let mut rig = Rig::new(seeds, topology, options);
    rig.entropy = u32::try_from(seed).expect("small");
    let (mut served, mut refused) = (0, 0);
    for _ in 0..30 {
        if random.below(2) == 0 {
            let address = random.pick(&["a:1", "b:1", "c:1", "d:1"]);
            rig.servers.insert(address, random.pick(&KINDS));
        }
        rig.sleep(random.pick(&[0, 1, 499, 500, 4_999, 5_000, 60_000]));
        let mode = random.pick(&ReadMode::ALL);
        let criteria = if random.below(3) == 0 { WRITE } else { SelectionCriteria::read(ReadPreference::of(mode)) };
        let (begin, scans) = (rig.now, rig.scan.ends);
        match rig.select(&criteria) {
            Ok(socket) => {
                served += 1;
                operate(&mut rig, &mut random, socket);
            }
            Err(error) => {
                refused += 1;
                let balanced = topology.load_balanced;
                match error.failure() {
                    SelectionFailure::TriedOnce => {
                        assert!(try_once);
                        assert!(balanced || rig.scan.ends != scans, "not without a scan");
                        assert!(rig.scan.ends.wrapping_sub(scans) <= 2, "one that was due, and one that failed");
                    }
                    SelectionFailure::TimedOut { waited } => {
                        assert!(!try_once);
                        assert!(waited.as_millis() <= u128::from(rig.now - begin));
                    }
                    other @ (SelectionFailure::Incompatible(_)
                    | SelectionFailure::Criteria(_)
                    | SelectionFailure::Closed) => panic!("nothing of the kind: {other:?}"),
                }
            }
        }
        assert_paired(&mut rig);
    }
    rig.scan.close(rig.time(), &mut rig.events);
    rig.work();
    assert!(rig.open.is_empty(), "every connection was closed");
    assert_paired(&mut rig);
    (served, refused)
}

/// An operation on a connection, with a random outcome.
fn operate(rig: &mut Rig, random: &mut Random, socket: SocketId) {
    match random.below(8) {
        0 => drop(fail_command(rig, socket, 10_107)),
        1 => drop(fail_command(rig, socket, 91)),
        2 => drop(fail_command(rig, socket, 13_436)),
        3 => {
            let (now, kind) = (rig.time(), AppErrorKind::Network);
            let phase = HandshakePhase::After;
            let told = rig.scan.handle_app_error(now, socket, phase, kind, false, &mut rig.events);
            assert!(told.is_ok());
        }
        // The connection is never returned.
        4 => return,
        _ => {}
    }
    let health = if random.below(4) == 0 { Health::Broken(Cause::Protocol) } else { Health::Healthy };
    let _ = rig.scan.check_in(rig.time(), socket, health);
    rig.scan.assert_invariants();
}

/// Every selection ends, every heartbeat has its end, and every connection is closed, for any
/// behavior of the servers.
#[test]
fn random_runs_end() {
    let (mut served, mut refused) = (0, 0);
    for seed in 0..500 {
        let result = std::panic::catch_unwind(|| run(seed));
        let Ok((good, bad)) = result else { panic!("seed {seed}") };
        served += good;
        refused += bad;
    }
    assert!(served > 1_000 && refused > 1_000, "{served} were served, {refused} refused");
}
