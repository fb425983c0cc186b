use super::*;
use crate::pool::{OnHeap, Pool, PoolConfig, PoolEvent, PoolId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Keeps names of events and addresses.
#[derive(Clone, Default)]
struct Seen(Vec<(&'static str, Option<String>)>);

impl Observer<PoolEvent> for Seen {
    fn on_event(&mut self, _: Instant, event: &PoolEvent) {
        self.0.push((event.name(), None));
    }

    fn on_event_in(&mut self, _: Instant, event: &PoolEvent, context: &EventContext<'_>) {
        self.0.push((event.name(), context.address.map(ToString::to_string)));
    }
}

#[test]
fn context_reaches_every_kind_of_observer() {
    let now = Instant::ORIGIN;
    let context = EventContext::of_server("a:1");
    let (mut one, mut plain) = (Seen::default(), Vec::<(Instant, PoolEvent)>::new());
    let mut both = Within::new(Tee(Tee(&mut one, Some(&mut plain)), None::<Seen>), context);
    drop(Pool::<OnHeap>::new(now, PoolId::new(1), PoolConfig::DEFAULT, &mut both));
    assert_eq!(one.0, [("PoolCreated", Some(String::from("a:1")))]);
    assert_eq!(plain.len(), 1, "one that takes no context gets the event all the same");
}

#[test]
fn inner_context_comes_before_the_outer() {
    let reply = RawDocument::EMPTY;
    let inner = EventContext::of_server("inner");
    let outer = EventContext::of_server("outer").with_topology(TopologyId::new(4)).with_reply(reply);
    let both = inner.or(&outer);
    assert_eq!((both.address, both.topology, both.reply), (Some("inner"), Some(TopologyId::new(4)), Some(reply)));
    assert_eq!(EventContext::NONE.or(&outer).address, Some("outer"));
}

#[test]
fn truncated_text_ends_between_characters() {
    let cut = |bytes: usize| format!("{}", Truncated::new("añ€😀", bytes));
    assert_eq!(cut(10), "añ€😀");
    for (bytes, expected) in
        [(0, "..."), (1, "a..."), (2, "a..."), (3, "añ..."), (5, "añ..."), (6, "añ€..."), (9, "añ€...")]
    {
        assert_eq!(cut(bytes), expected, "{bytes}");
    }
    assert_eq!(format!("{}", Truncated::new("", 0)), "");
}

#[test]
fn what_is_behind_the_cut_is_not_formatted() {
    struct Careful;

    impl core::fmt::Display for Careful {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("12345")?;
            unreachable!("the cut was before")
        }
    }

    assert_eq!(format!("{}", Truncated::new(Careful, 3)), "123...");
}
