//! Runs with one falsified output, and what they break.

pub(super) mod falsified;
