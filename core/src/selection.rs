//! Server selection: chooses the server for an operation.
//!
//! Read first: Server Selection, "Rules for server selection", "Round Trip Times and the Latency
//! Window", "Multi-threaded or asynchronous server selection"; Max Staleness, "Smallest allowed
//! value for maxStalenessSeconds".
//!
//! Pure functions of a topology's description, without state, allocation and floating point:
//!
//! ```text
//! servers ──deprioritized──▶ ──mode, staleness, tag set──▶ suitable ──latency──▶ window ──two at random──▶ the server
//! ```
//!
//! - [`SelectionCriteria`]: the requirements of the operation;
//! - [`Selection`]: the suitable servers, those within the latency window, and the choice of one;
//! - [`select`]: all steps in one call; [`select_direct`]: the same for a direct connection alone;
//! - [`Selector`]: the wait of an operation that found no server, for clients whose servers are
//!   monitored in the background. Clients without monitors use [`Scan`](crate::scan::Scan).
//!
//! They accept any [`Candidates`], which
//! [`TopologyDescription`](crate::topology::TopologyDescription) implements.
//!
//! # Settled where the specification is silent
//!
//! - Deprioritized servers are excluded from the candidates, but their descriptions are still used:
//!   the staleness of secondaries is measured against a deprioritized primary too.
//! - With maxStalenessSeconds, a secondary without lastWriteDate is too stale, because its
//!   staleness is unknown. If the primary has none, staleness is measured against the freshest
//!   secondary.
//! - A suitable server without a round-trip time is in the latency window only if no suitable
//!   server has one.
//! - A ghost with a direct connection is available, like any server that answered.

mod candidate;
mod choice;
mod criteria;
mod error;
#[cfg(test)]
pub(crate) mod tests;
mod wait;

pub use candidate::{Candidate, Candidates};
pub use choice::{Selection, draw_two, has_readable_server, has_writable_server, select, select_direct};
pub use criteria::{
    IDLE_WRITE_PERIOD, LOCAL_THRESHOLD, MAX_STALENESS_MIN, Operation, ReadMode, ReadPreference, ReadPreferenceOptions,
    SelectionCriteria, TagSet,
};
pub use error::{Described, SelectionError, SelectionFailure};
#[cfg(feature = "alloc")]
pub use error::{DetailedSelectionError, ServerNote};
pub use wait::{SERVER_SELECTION_TIMEOUT, Selector};
