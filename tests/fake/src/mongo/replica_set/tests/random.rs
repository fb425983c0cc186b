//! After any sequence of incidents a set reaches the expected state.

use super::super::super::shared::splitmix64;
use super::super::{MemberConfig, MemberOptions};
use super::*;

const SEEDS: u64 = 30;
const OPERATIONS: usize = 40;

struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        usize::try_from(splitmix64(&mut self.0) % u64::try_from(count).unwrap()).unwrap()
    }
}

fn operate(set: &FakeReplicaSet, dice: &mut Dice) {
    let member = dice.below(set.servers_count());
    let configured = set.config().iter().any(|entry| entry.member == member);
    let primary = set.primary();
    match dice.below(12) {
        0 => set.kill(member).unwrap(),
        1 => set.restart(member).unwrap(),
        2 => set.freeze(member),
        3 => set.thaw(member),
        4 => set.set_reachable(member, dice.below(2) == 0),
        5 => set.partition(&[&[member], &[(member + 1) % set.servers_count()]]),
        6 => set.heal(),
        7 | 8 => set.settle(),
        9 if primary.is_some() => {
            set.step_down();
        }
        10 if primary.is_some() && configured && Some(member) != primary && set.config().len() > 2 => {
            set.remove(member)
        }
        10 if primary.is_some() && !configured => {
            set.reconfigure(|members| members.push(MemberConfig::new(member, MemberOptions::default())));
        }
        11 if primary.is_some() && configured => {
            let priority = u32::try_from(1 + dice.below(3)).unwrap();
            set.reconfigure_member(member, |options| options.priority = priority);
        }
        _ => {}
    }
}

/// Checks invariants that hold at any time.
fn check(set: &FakeReplicaSet) {
    set.look(|view| {
        assert!(view.reigns().is_sorted_by(|one, other| one.election_id < other.election_id));
        let open = |member| view.reigns().iter().any(|reign| reign.member == member && reign.until.is_none());
        for member in view.primaries() {
            assert!(open(member), "member {member} is primary");
            assert_eq!(view.role(member), Role::Primary);
        }
    });
    for member in 0..set.servers_count() {
        let shown = set.server(member).state();
        let (alive, role) = set.look(|view| (view.is_alive(member), view.role(member)));
        assert!(!alive || shown.role == role, "member {member} is {role:?} and reports {:?}", shown.role);
        assert_eq!(shown.fields.contains_key("electionId"), shown.role == Role::Primary);
    }
}

fn history(seed: u64) -> Vec<usize> {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions { seed, ..FakeReplicaSetOptions::of(5).by_hand() }).unwrap();
    let mut dice = Dice(seed);
    for _ in 0..OPERATIONS {
        operate(&set, &mut dice);
        check(&set);
    }
    for member in 0..set.servers_count() {
        set.thaw(member);
        set.set_reachable(member, true);
        if !set.look(|view| view.is_alive(member)) {
            set.restart(member).unwrap();
        }
    }
    set.heal();
    set.settle();
    check(&set);
    let primary = set.primary().unwrap_or_else(|| panic!("seed {seed}: a healed set has a primary"));
    let version = set.look(|view| view.set_version());
    for MemberConfig { member, .. } in set.config() {
        let reply = hello(&set, member);
        assert_eq!(reply.get_str("primary").unwrap(), name(&set, primary), "seed {seed}");
        assert_eq!(reply.get_i32("setVersion").unwrap(), version, "seed {seed}");
        assert_eq!(is(&reply, "secondary"), member != primary, "seed {seed}");
    }
    assert_eq!(set.look(|view| view.primaries()), [primary], "seed {seed}");
    set.reigns().iter().map(|reign| reign.member).collect()
}

#[test]
fn healed_set_agrees_on_one_primary() {
    for seed in 0..SEEDS {
        history(seed);
    }
}

#[test]
fn seed_replays_exactly() {
    for seed in 0..5 {
        assert_eq!(history(seed), history(seed));
    }
}
