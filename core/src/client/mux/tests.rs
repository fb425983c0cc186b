//! Sessions without a network.
