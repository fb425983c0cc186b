//! Events of the topology, in their order (LOG-01..10).

use super::support::{client, eventually, known, options, ping, run, still_set};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::pool::PoolEvent;
use poolhouse_smol::poolhouse_core::topology::{OwnedSdamEvent, TopologyType};
use poolhouse_smol::{Client, Event, Notice};

fn name_of(event: &OwnedSdamEvent) -> String {
    if let OwnedSdamEvent::ServerOpening { address, .. } = event {
        format!("opening {address}")
    } else if let OwnedSdamEvent::ServerClosed { address, .. } = event {
        format!("closed {address}")
    } else if let OwnedSdamEvent::ServerDescriptionChanged { address, .. } = event {
        format!("changed {address}")
    } else {
        event.name().to_owned()
    }
}

/// From the opening of the topology to its end: every server opens before it changes and closes
/// once. After the end only the last events of pools follow.
#[test]
fn events_are_in_order_from_opening_to_closing() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let uri = set.uri_of(&[primary]);
        let (client, mut events) = Client::new_subscribed(options(&uri)).expect("the options are right");
        ping(&client).await.expect("a ping");
        known(&client, &set).await;
        let gone = (primary + 1) % 3;
        set.remove(gone);
        eventually("it is removed", || client.servers().len() == 2).await;
        client.close().await;
        let mut names = Vec::new();
        let mut pools = Vec::new();
        while let Some(notice) = events.next().await {
            match notice {
                Notice::Event { event: Event::Sdam(event), .. } => names.push(name_of(&event)),
                Notice::Event { event: Event::Pool(event), .. } => pools.push(event),
                Notice::Event { .. } => {}
                Notice::Lagged { count } => panic!("{count} events were lost"),
            }
        }
        let place = |name: &str| names.iter().position(|each| each == name);
        let last = |name: &str| names.iter().rposition(|each| each == name);
        let count = |name: &str| names.iter().filter(|each| *each == name).count();
        assert_eq!(names[0], "TopologyOpening");
        assert_eq!(names[1], "TopologyDescriptionChanged");
        assert_eq!(names[2], format!("opening {}", set.address(primary)));
        let end = names.len();
        assert_eq!(names[end - 2..], ["TopologyDescriptionChanged", "TopologyClosed"], "{names:#?}");
        for member in 0..3 {
            let address = set.address(member);
            let (opening, closed, changed) =
                (format!("opening {address}"), format!("closed {address}"), format!("changed {address}"));
            assert_eq!((count(&opening), count(&closed)), (1, 1), "{names:#?}");
            assert!(place(&opening) < place(&changed), "{names:#?}");
            // A description that changes together with the removal is reported before it.
            assert!(last(&changed) < place(&closed), "{names:#?}");
        }
        assert_eq!(count("NoServers"), 0);
        assert_eq!((count("TopologyOpening"), count("TopologyClosed")), (1, 1));
        // Each of three pools is created once and closed once; after its end only the ends of its
        // connections are reported.
        let of = |wanted: fn(&PoolEvent) -> bool| pools.iter().filter(|event| wanted(event)).count();
        assert_eq!(of(|event| matches!(event, PoolEvent::PoolCreated { .. })), 3);
        assert_eq!(of(|event| matches!(event, PoolEvent::PoolClosed { .. })), 3);
        let created = of(|event| matches!(event, PoolEvent::ConnectionCreated { .. }));
        assert_eq!(of(|event| matches!(event, PoolEvent::ConnectionClosed { .. })), created);
    });
}

/// A snapshot is the topology before an update or after it, never a mixture, and does not
/// change later.
#[test]
#[doc(alias = "SDAM-62")]
fn snapshots_are_consistent_while_the_set_changes() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let first = client.topology();
        let shown = first.to_string();
        let stop = Arc::new(AtomicBool::new(false));
        // Snapshots without a primary, and snapshots with one.
        let looks = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (client, stop, looks) = (client.clone(), Arc::clone(&stop), Arc::clone(&looks));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let seen = client.topology();
                        let seen = seen.get();
                        let is_primary = seen.servers().filter(|server| server.server_type() == ServerType::RsPrimary);
                        let primaries = is_primary.count();
                        let with_primary = seen.topology_type() == TopologyType::ReplicaSetWithPrimary;
                        assert_eq!(primaries, usize::from(with_primary), "{seen}");
                        assert_eq!(seen.has_writable_server(), with_primary, "{seen}");
                        looks[primaries].fetch_add(1, Ordering::Relaxed);
                        // Not long, because a mixture could be visible for microseconds. But a thread that never
                        // sleeps seldom runs in the middle of a change.
                        std::thread::sleep(Duration::from_micros(10));
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            let primary = set.primary().expect("a primary");
            let [without, with] = [0, 1].map(|primaries| looks[primaries].load(Ordering::Relaxed));
            set.step_down();
            eventually("it is seen without a primary", || looks[0].load(Ordering::Relaxed) > without).await;
            set.elect((primary + 1) % 3);
            known(&client, &set).await;
            eventually("it is seen with one", || looks[1].load(Ordering::Relaxed) > with).await;
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("each look was whole");
        }
        assert_eq!(first.to_string(), shown);
        client.close().await;
    });
}
