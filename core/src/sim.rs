//! For simulators and exhaustive searches only: not for use, and not stable.
//!
//! The feature `sim` makes this module public. It changes nothing that a machine does unless a simulator [arms](chance::arm)
//! fault points.

pub mod chance;
mod narrow;
mod word;

#[cfg(feature = "sim")]
pub use narrow::begin_near_end;
pub(crate) use narrow::origin;
pub use word::Word;
pub(crate) use word::{Past, Serial};
