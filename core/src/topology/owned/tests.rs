use super::super::{OnHeap, Topology, TopologyOptions};
use super::*;
use crate::replies::{pairs, texts};
use crate::{Instant, Observer};
use alloc::format;
use alloc::string::ToString;
use poolhouse_wire::hello::HelloReply;

/// Owned copies of events, as a queue of events keeps them.
#[derive(Default)]
struct Copies(Vec<OwnedSdamEvent>, Option<OwnedTopologyDescription>);

impl Observer<SdamEvent<'_>> for Copies {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        let copy = event.copy_after(&mut self.1);
        assert_eq!((copy.to_string(), format!("{:?}", copy.get())), (event.to_string(), format!("{event:?}")));
        self.0.push(copy);
    }
}

fn secondary(tags: &[&str], set_version: i64) -> HelloReply<'static> {
    let tags: Vec<_> = tags.iter().map(|name| (*name, "1")).collect();
    HelloReply {
        secondary: true,
        set_name: Some("rs"),
        set_version: Some(set_version),
        max_wire_version: 21,
        hosts: texts(&["a", "b"]),
        tags: pairs(&tags),
        ..HelloReply::OK
    }
}

fn changes(copies: &Copies) -> Vec<[&super::Topology; 2]> {
    let changes = copies.0.iter().filter_map(|event| {
        let OwnedSdamEvent::TopologyDescriptionChanged { previous, new, .. } = event else { return None };
        Some([&*previous.shared, &*new.shared])
    });
    changes.collect()
}

/// Without sharing, the copy for each of many small replies would be as large as that for the
/// largest reply.
#[test]
fn consecutive_events_share_descriptions_and_texts() {
    let options = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() };
    let mut copies = Copies::default();
    let config = options.validate().unwrap();
    let mut topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut copies).unwrap();
    let [a, b] = ["a", "b"].map(|address| topology.find(address).unwrap());
    let past: Vec<String> = (0..100).map(|number| format!("past{number}")).collect();
    let past: Vec<&str> = past.iter().map(String::as_str).collect();
    topology.handle_hello(Instant::ORIGIN, a, &secondary(&past, 1), None, &mut copies);
    topology.handle_hello(Instant::ORIGIN, a, &secondary(&["east"], 1), None, &mut copies);
    copies.0.clear();
    for version in 0..5 {
        topology.handle_hello(Instant::ORIGIN, b, &secondary(&[], version), None, &mut copies);
    }
    let changes = changes(&copies);
    assert_eq!(changes.len(), 5);
    for pair in changes.windows(2) {
        assert!(core::ptr::eq(pair[0][1], pair[1][0]), "a description is copied once");
    }
    for [previous, new] in &changes[1..] {
        assert!(Arc::ptr_eq(&previous.texts, &new.texts), "texts are copied once");
    }
    let texts = &changes[4][1].texts;
    assert_eq!(texts.slots.len(), 4, "two addresses, a set name and a tag, and no text of earlier replies");
}

/// The bytes of each copied event, with a seed of this many letters.
#[cfg(feature = "std")]
fn heap_bytes_with_a_seed_of(letters: usize) -> Vec<usize> {
    let seed = "a".repeat(letters);
    let options = TopologyOptions { seeds: &[&seed], ..TopologyOptions::default() };
    let mut copies = Copies::default();
    let config = options.validate().unwrap();
    let mut topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut copies).unwrap();
    let server = topology.find(&seed).unwrap();
    topology.handle_hello(Instant::ORIGIN, server, &HelloReply::OK, None, &mut copies);
    topology.close(Instant::ORIGIN, &mut copies);
    let events: Vec<String> = copies.0.iter().map(|event| format!("{event:?}")).collect();
    let names = events.iter().map(|event| event.split([' ', '{']).next().unwrap());
    let expected = [
        "TopologyOpening",
        "TopologyDescriptionChanged",
        "ServerOpening",
        "ServerDescriptionChanged",
        "TopologyDescriptionChanged",
        "ServerClosed",
        "TopologyDescriptionChanged",
        "TopologyClosed",
    ];
    assert!(names.eq(expected), "{events:?}");
    copies.0.iter().map(OwnedSdamEvent::heap_bytes).collect()
}

/// A queue of events limits its memory by these numbers. Some descriptions have no server, and so no
/// text.
#[cfg(feature = "std")]
#[test]
fn heap_bytes_of_a_copy_include_its_texts() {
    let (short, long) = (heap_bytes_with_a_seed_of(20), heap_bytes_with_a_seed_of(60));
    let more: Vec<_> = short.iter().zip(&long).map(|(short, long)| long - short).collect();
    // An address of 40 letters more, once for each of its copies.
    assert_eq!(more, [0, 40, 40, 120, 80, 40, 40, 0]);
    let address = 20 + ":27017".len();
    assert_eq!([short[0], short[2], short[5], short[7]], [0, address, address, 0]);
    for place in [1, 3, 4, 6] {
        assert!((200..4_000).contains(&short[place]), "{short:?}");
    }
}

#[cfg(feature = "std")]
#[test]
fn heap_bytes_of_a_description_include_its_servers() {
    let config = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }.validate().unwrap();
    let mut copies = Copies::default();
    let topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut copies).unwrap();
    let bytes = topology.description().to_owned().heap_bytes();
    // A list of one server may have memory for some more.
    let [fixed, server] = [size_of::<super::Topology>(), size_of::<Server>()];
    assert!((fixed + server..fixed + 6 * server).contains(&bytes), "{bytes} of {fixed} and a server of {server}");
}
