//! Events as log messages of defmt.

use defmt::{Display2Format, debug};
use poolhouse_core::Instant;
use poolhouse_core::observe::EventContext;
use poolhouse_driver::{EventRef, Publish};

/// Logs each event at level *debug*, as one line: milliseconds since the start, the server's address if it is known, the event's name and what it tells, as
/// everywhere else. It is given to [`Client::with_events`](crate::Client::with_events), and to [`Sizes`](crate::Sizes) as the type of its events.
///
/// The level is chosen where the application is built: `DEFMT_LOG=poolhouse_embassy=debug`. Secrets are in no event.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefmtEvents;

impl Publish for DefmtEvents {
    #[inline]
    fn is_active(&self) -> bool {
        true
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let (ms, address) = (now.as_nanos() / 1_000_000, context.address.unwrap_or("-"));
        match event {
            EventRef::Pool(event) => debug!("{=u64} ms {=str} {}", ms, address, Display2Format(event)),
            EventRef::Heartbeat(event) => debug!("{=u64} ms {=str} {}", ms, address, Display2Format(event)),
            EventRef::Sdam(event) => debug!("{=u64} ms {=str} {}", ms, address, Display2Format(event)),
            // There are no multiplexed pools here.
            EventRef::Mux(_) | _ => {}
        }
    }
}
