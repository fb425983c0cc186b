use super::*;
use crate::pool::{OnHeap, Pool, PoolConfig, PoolEvent, PoolId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Stores names of events and addresses.
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
fn inner_context_takes_precedence() {
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
fn text_after_the_cut_is_not_formatted() {
    struct Careful;

    impl core::fmt::Display for Careful {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("12345")?;
            unreachable!("the cut was before")
        }
    }

    assert_eq!(format!("{}", Truncated::new(Careful, 3)), "123...");
}

#[test]
fn events_without_context_reach_both_observers_in_order() {
    let (mut first, mut second) = (Seen::default(), Seen::default());
    let mut both = Tee(&mut first, Some(&mut second));
    both.on_event(Instant::ORIGIN, &PoolEvent::PoolReady { pool: PoolId::new(1) });
    Some(&mut both).on_event(Instant::ORIGIN, &PoolEvent::PoolClosed { pool: PoolId::new(1) });
    assert_eq!(first.0, [("PoolReady", None), ("PoolClosed", None)]);
    assert_eq!(second.0, first.0);
}

#[test]
fn truncated_text_returns_errors_of_its_source_and_sink() {
    use core::fmt::Write;

    struct Few(usize);
    impl Write for Few {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(core::fmt::Error)?;
            Ok(())
        }
    }
    struct Broken;
    impl core::fmt::Display for Broken {
        fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            Err(core::fmt::Error)
        }
    }
    struct Stubborn;
    impl core::fmt::Display for Stubborn {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            let _ = f.write_str("12345");
            let _ = f.write_str("67890");
            Ok(())
        }
    }
    for room in 0..6 {
        assert!(write!(Few(room), "{}", Truncated::new("abcdef", 3)).is_err(), "3 bytes and 3 dots in {room}");
    }
    assert!(write!(Few(6), "{}", Truncated::new("abcdef", 3)).is_ok());
    assert!(write!(Few(9), "{}", Truncated::new(Broken, 3)).is_err(), "its own failure is not taken for the cut");
    assert_eq!(format!("{}", Truncated::new(Stubborn, 3)), "123...");
}

/// Sums the events that it receives.
#[derive(Default)]
struct Sum(u32);

impl Observer<u32> for Sum {
    fn on_event(&mut self, _now: Instant, event: &u32) {
        self.0 += event;
    }
}

#[test]
fn references_and_options_of_observers_receive_all_events() {
    fn tell(mut observer: impl Observer<u32>, event: u32) {
        observer.on_event(Instant::ORIGIN, &event);
        observer.on_event_in(Instant::ORIGIN, &(10 * event), &EventContext::default());
    }
    let mut sum = Sum::default();
    tell(&mut sum, 1);
    assert_eq!(sum.0, 11);
    tell(Some(&mut sum), 200);
    assert_eq!(sum.0, 2_211);
    tell(None::<&mut Sum>, 1);
    assert_eq!(sum.0, 2_211);
}
