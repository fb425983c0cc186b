//! Memory that is exhausted, at each allocation in turn.

use super::*;
use crate::storage::tests::{Scarce, with_memory_for};

/// Heap memory with an allocator that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnScarce;

impl Memory for OnScarce {
    type PerServer<T> = Scarce<T>;
    type PerName<T> = Scarce<T>;
    type PerText<T> = Scarce<T>;
    type Bytes = Scarce<u8>;
    const NAMES_MAX: u16 = OnHeap::NAMES_MAX;
    const SERVERS_MAX: u32 = OnHeap::SERVERS_MAX;
    const TEXTS_MAX: u16 = OnHeap::TEXTS_MAX;
    const BYTES_MAX: u32 = OnHeap::BYTES_MAX;
}

/// The numbers of hosts and tags before and after each change of a known server's description.
#[derive(Default)]
struct Names(Vec<([usize; 2], [usize; 2])>);

impl Observer<SdamEvent<'_>> for Names {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        if let SdamEvent::ServerDescriptionChanged { previous, new, .. } = event {
            if previous.server_type().is_known() {
                self.0.push((
                    [previous, new].map(|side| side.hosts().len()),
                    [previous, new].map(|side| side.tags().len()),
                ));
            }
        }
    }
}

const HOSTS: &[&str] = &["a", "b", "c"];

fn tagged<'a>(hosts: &'a [&'a str], tags: &'a [(&'a str, &'a str)]) -> Hello<'a> {
    Lists { hosts, tags, ..Lists::default() }.of(primary(&[]))
}

/// A primary lists the members, and memory is exhausted at some allocation: the reply either makes
/// the primary Unknown for that reason, or is applied whole, but never in part.
#[test]
fn reply_without_memory_makes_its_server_unknown() {
    let mut limits = Vec::new();
    for count in 0.. {
        let options = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }.validate().unwrap();
        let now = Instant::from_nanos(1_000);
        let (opened, is_out) = with_memory_for(count, || {
            let topology = Topology::<OnScarce>::new(now, TopologyId::new(7), options, &mut Lines::default())?;
            let mut net = Net { topology, lines: Lines::default(), now };
            net.hello("a", &tagged(HOSTS, &[("dc", "ny"), ("rack", "1")]));
            Ok::<_, Full>(net)
        });
        let Ok(mut net) = opened else {
            assert!(is_out);
            continue;
        };
        match net.see("a").error() {
            Some(ServerError::Beyond { limit, .. }) => {
                assert!(is_out);
                assert_eq!(net.types(), [("a:27017".into(), ServerType::Unknown)]);
                limits.push(limit);
            }
            error => assert_eq!((error, net.see("a").server_type()), (None, ServerType::RsPrimary)),
        }
        assert!(net.hello("a", &tagged(HOSTS, &[("dc", "ny"), ("rack", "1")])), "memory is there again");
        assert_eq!((net.topology.server_count(), net.see("a").tags().len()), (3, 2));
        if !is_out {
            break;
        }
    }
    assert!(limits.contains(&Limit::Texts) && limits.contains(&Limit::Names), "{limits:?}");
    assert_eq!(limits.last(), Some(&Limit::Servers), "the last that is asked for");
}

/// Without memory for the previous names, the event has the previous description without them.
/// Nothing else differs.
#[test]
fn event_without_memory_for_previous_names_contains_the_new_ones() {
    let mut told = Vec::new();
    for count in 0..2 {
        let mut net: Net<OnScarce> = open_in(TopologyOptions { seeds: &["a"], ..TopologyOptions::default() });
        net.hello("a", &tagged(HOSTS, &[("dc", "ny")]));
        let (server, mut names) = (net.at("a"), Names::default());
        // All names have room, and their texts are already stored.
        let (is_known, is_out) = with_memory_for(count, || {
            net.topology.handle_hello(net.now, server, &tagged(&HOSTS[..2], &[]), None, &mut names)
        });
        net.topology.assert_invariants();
        assert!(is_known);
        assert_eq!((is_out, net.topology.server_count()), (count == 0, 2));
        told.push(names.0);
    }
    assert_eq!(told, [[([0, 2], [0, 0])], [([3, 2], [1, 0])]]);
}

/// New hosts of a router without memory for them: no server is added or removed.
#[test]
fn seeds_without_memory_change_nothing() {
    for count in 0.. {
        let mut net: Net<OnScarce> = open_in(TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() });
        net.drain();
        let seeds = ["b", "c", "d"];
        let (result, is_out) =
            with_memory_for(count, || net.topology.handle_seeds(net.now, seeds.into_iter(), &mut net.lines));
        net.topology.assert_invariants();
        if result.is_err() {
            assert_eq!((net.topology.server_count(), net.lines().len(), net.actions().len()), (2, 0, 0));
            assert_eq!(net.topology.handle_seeds(net.now, seeds.into_iter(), &mut net.lines), Ok(()));
        }
        let addresses: Vec<_> = net.types().into_iter().map(|(address, _)| address).collect();
        assert_eq!(addresses, ["b:27017", "c:27017", "d:27017"]);
        if !is_out {
            assert!(count > 3);
            return;
        }
    }
}
