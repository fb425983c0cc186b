//! Events as log messages of defmt.

use defmt::debug;
use poolhouse_core::Instant;
use poolhouse_core::observe::EventContext;
use poolhouse_driver::{EventKinds, EventRef, Publish};

/// Logs each event at level *debug*, as one line: milliseconds since the start, the server's
/// address if it is known, and the event with its fields. The texts are those of `defmt::Format`: they
/// stay on the host, and the device sends numbers, addresses and durations.
/// Pass it to [`Client::with_events`](crate::Client::with_events), and use it as the event type of
/// [`Sizes`](crate::Sizes).
///
/// The level is chosen when the application is built: `DEFMT_LOG=poolhouse_embassy=debug`. Events
/// contain no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefmtEvents;

impl Publish for DefmtEvents {
    #[inline]
    fn kinds(&self) -> EventKinds {
        EventKinds::ALL
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let (ms, address) = (now.as_nanos() / 1_000_000, context.address.unwrap_or("-"));
        match event {
            EventRef::Pool(event) => debug!("{=u64} ms {=str} {}", ms, address, event),
            EventRef::Heartbeat(event) => debug!("{=u64} ms {=str} {}", ms, address, event),
            EventRef::Sdam(event) => debug!("{=u64} ms {=str} {}", ms, address, event),
            // Multiplexed pools do not exist on this runtime.
            EventRef::Mux(_) | _ => {}
        }
    }
}
