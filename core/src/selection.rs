//! Which server an operation goes to.
//!
//! Read first: Server Selection, "Rules for server selection", "Round Trip Times and the Latency Window", "Multi-threaded or
//! asynchronous server selection"; Max Staleness, "Smallest allowed value for maxStalenessSeconds".
//!
//! Pure functions over what is known of a topology; nothing is kept, nothing allocated, no floating point:
//!
//! ```text
//! servers ──deprioritized──▶ ──mode, staleness, tag set──▶ suitable ──latency──▶ window ──two at random──▶ the server
//! ```
//!
//! - [`SelectionCriteria`]: what the operation wants;
//! - [`Selection`]: which servers are suitable, which of them are near enough, and the choice of one;
//! - [`select`]: all of it in one call;
//! - [`Selector`]: the wait of an operation that found none, for clients whose servers are monitored in the background.
//!   Clients without monitors use [`Scan`](crate::scan::Scan).
//!
//! They are written over [`Candidates`], which a [`TopologyDescription`](crate::topology::TopologyDescription) is.
//!
//! # Settled where the specification is silent
//!
//! - Deprioritized servers are left out of the candidates, but what is known of them still counts: a deprioritized primary is what
//!   the staleness of secondaries is measured against.
//! - With maxStalenessSeconds, a secondary that says no lastWriteDate is too stale: nothing is known of its staleness. A primary that
//!   says none is no measure, and the freshest secondary is it instead.
//! - A suitable server without a round-trip time is in the latency window only if no suitable server has one.
//! - A ghost that is connected to directly is available, like any server that answered (SDAM-01).

mod candidate;
mod choice;
mod criteria;
mod error;
#[cfg(test)]
pub(crate) mod tests;
mod wait;

pub use candidate::{Candidate, Candidates};
pub use choice::{Selection, has_readable_server, has_writable_server, select};
pub use criteria::{
    IDLE_WRITE_PERIOD, LOCAL_THRESHOLD, MAX_STALENESS_MIN, Operation, ReadMode, ReadPreference, ReadPreferenceOptions,
    SelectionCriteria, TagSet,
};
pub use error::{Described, SelectionError, SelectionFailure};
#[cfg(feature = "alloc")]
pub use error::{DetailedSelectionError, ServerNote};
pub use wait::{SERVER_SELECTION_TIMEOUT, Selector};
