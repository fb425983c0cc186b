//! Memory for the bytes of a peer, on every seed of the fuzz targets: reading them allocates nothing,
//! and the memory that is reserved for a message is bounded by the bytes that have arrived. The
//! memory of events that wait for their reader is bounded, too.

use allocation_counter::measure;
use poolhouse_core::topology::{OnHeap, SdamEvent, Topology, TopologyId, TopologyOptions};
use poolhouse_core::{Instant, Observer};
use poolhouse_cql::{Decoder, Direction, Limits as CqlLimits, Version};
use poolhouse_driver::{EventKinds, EventRef, Notice, Publish, SUBSCRIPTION_BYTES, SUBSCRIPTION_EVENTS, Subscribers};
use poolhouse_tests::fuzz::TARGETS;
use poolhouse_tests::hunt::files;
use poolhouse_tests::reply::Lists;
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::compress::{Compressor, Compressors, Packer};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::{Decoded, Exchange, Flags, Limits, decode_message};
use std::path::Path;

/// The maximum of additional bytes while `act` ran.
fn most<R>(act: impl FnOnce() -> R) -> usize {
    let taken = measure(|| drop(act()));
    usize::try_from(taken.bytes_max).expect("the bytes of this machine")
}

fn corpora() -> impl Iterator<Item = Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"));
    TARGETS.iter().flat_map(move |(name, _)| files(&folder.join(name)))
}

#[test]
fn reading_allocates_nothing() {
    let mut count = 0;
    for data in corpora() {
        let held = most(|| {
            let _ = decode_message(&data, &Limits::DEFAULT).map(|decoded| match decoded {
                Decoded::Done { value, .. } => value.validate_structure().is_ok(),
                Decoded::NeedMore { .. } => false,
            });
            let mut exchange = Exchange::IDLE;
            exchange.begin(1, Flags::EXHAUST_ALLOWED);
            let _ = exchange.decode_reply(&data, &Limits::DEFAULT);
            if let Ok(document) = RawDocument::new(&data) {
                let _ = (document.validate(), HelloReply::parse(document), CommandReply::parse(document));
            }
        });
        assert_eq!(held, 0, "{data:02x?}");
        count += 1;
    }
    assert!(count > 5 * TARGETS.len(), "only {count} files were read");
}

#[test]
fn inflating_holds_no_more_than_declared_and_allowed() {
    let limits = Limits { message_bytes_max: 64 * 1024, document_bytes_max: 64 * 1024 };
    let all: Compressors = Compressor::ALL.into_iter().collect();
    for data in corpora() {
        let mut packer = Packer::new(all, None);
        packer.agree(all);
        let first = most(|| packer.unpack(&data, &limits).is_ok());
        // Includes the contexts of the decompressors, which are allocated at their first use: a
        // quarter of a megabyte for the largest.
        assert!(first <= 2 * limits.message_bytes_max as usize + 512 * 1024, "{first} bytes for {data:02x?}");
        assert!(packer.buffer_bytes() <= limits.message_bytes_max as usize);
    }
}

#[test]
fn envelopes_hold_no_more_than_received() {
    let limits = CqlLimits { body_bytes_max: 256 * 1024 * 1024 };
    for data in corpora() {
        for version in Version::ALL {
            let mut decoder = Decoder::new(version, Direction::Response, limits, Vec::new(), Vec::new());
            let held = most(|| {
                let mut at = 0;
                while let Ok(step) = decoder.decode(&data[at..]) {
                    let over = step.envelope.is_none();
                    at += step.consumed_bytes;
                    if over {
                        break;
                    }
                }
            });
            assert!(held <= 4 * data.len() + 256, "{held} bytes for {} of {version:?}", data.len());
        }
    }
}

/// Publishes the events of a topology.
struct Told<'s>(&'s Subscribers);

impl Observer<SdamEvent<'_>> for Told<'_> {
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'_>) {
        self.0.publish(now, EventRef::Sdam(event));
    }
}

fn secondary(lists: &Lists, set_version: i64) -> HelloReply<'_> {
    lists.of(HelloReply {
        secondary: true,
        set_name: Some("rs"),
        set_version: Some(set_version),
        max_wire_version: 21,
        ..HelloReply::OK
    })
}

/// One member sends one large reply; another member sends many small replies.
#[test]
fn unread_events_hold_no_more_than_their_limit() {
    for (count, bytes) in [(400, 9_500), (400, 200), (300, 20)] {
        let subscribers = Subscribers::default();
        let mut subscription = subscribers.subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, |_| true);
        let config = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() }.validate().expect("valid");
        let now = Instant::ORIGIN;
        let name = |number: usize| (format!("{number}"), "x".repeat(bytes));
        let reply = |tags: Vec<(String, String)>| Lists::new(&["a", "b"], &[""; 0], &[""; 0], &tags);
        let large = reply((0..count).map(name).collect());
        let held = most(|| {
            let reported = &mut Told(&subscribers);
            let mut topology =
                Topology::<OnHeap>::new(now, TopologyId::new(1), config, reported).expect("room for seeds");
            let [a, b] = ["a", "b"].map(|address| topology.find(address).expect("a seed"));
            topology.handle_hello(now, a, &secondary(&large, 1), None, reported);
            for version in 0..1_000 {
                let small = reply(vec![("round".to_owned(), format!("{version}"))]);
                topology.handle_hello(now, b, &secondary(&small, version), None, reported);
            }
        });
        let counted: usize = core::iter::from_fn(|| subscription.try_next())
            .map(|notice| match notice {
                Notice::Event { .. } => 1,
                Notice::Lagged { count } => usize::try_from(count).expect("not so many"),
            })
            .sum();
        assert!(counted > 2_000, "{counted} events are too few for an attack");
        // In addition to the events that wait: the topology itself, and the copy that is being
        // made.
        let limit = SUBSCRIPTION_BYTES + (1 << 20);
        assert!(held <= limit, "{held} bytes are held for {count} tags of {bytes} bytes");
    }
}
