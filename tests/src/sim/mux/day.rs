//! A day of load.
