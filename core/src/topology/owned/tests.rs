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
fn security_5_consecutive_events_share_descriptions_and_texts() {
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
fn heap_bytes_with_a_seed_of(letters: usize) -> Vec<(&'static str, usize)> {
    let seed = "a".repeat(letters);
    let options = TopologyOptions { seeds: &[&seed], ..TopologyOptions::default() };
    let mut copies = Copies::default();
    let config = options.validate().unwrap();
    let mut topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut copies).unwrap();
    let server = topology.find(&seed).unwrap();
    topology.handle_hello(Instant::ORIGIN, server, &HelloReply::OK, None, &mut copies);
    topology.close(Instant::ORIGIN, &mut copies);
    let name = |event: &OwnedSdamEvent| match event {
        OwnedSdamEvent::TopologyDescriptionChanged { .. } => "topology changed",
        OwnedSdamEvent::ServerDescriptionChanged { .. } => "server changed",
        OwnedSdamEvent::ServerOpening { .. } | OwnedSdamEvent::ServerClosed { .. } => "server",
        _ => "topology",
    };
    copies.0.iter().map(|event| (name(event), event.heap_bytes())).collect()
}

/// A queue of events limits its memory by these numbers.
#[cfg(feature = "std")]
#[test]
fn heap_bytes_of_a_copy_include_its_texts() {
    const LETTERS: usize = 200;
    let (short, long) = (heap_bytes_with_a_seed_of(1), heap_bytes_with_a_seed_of(1 + LETTERS));
    let count = |name| short.iter().filter(|(other, _)| *other == name).count();
    assert_eq!(["topology changed", "server changed", "server", "topology"].map(count), [3, 1, 2, 2]);
    for ((name, short), (_, long)) in short.into_iter().zip(long) {
        let (texts, least, most) = match name {
            "topology" => (0, 0, 0),
            "server" => (1, 1 + ":27017".len(), 1 + ":27017".len()),
            // The address, and a copy of it in each description.
            "server changed" => (3, 100, 2_000),
            _ => (2, 100, 2_000),
        };
        assert_eq!(long - short, texts * LETTERS, "{name}");
        assert!((least..=most).contains(&short), "{name}: {short}");
    }
}
