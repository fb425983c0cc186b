//! Fuzz bodies: ordinary functions over bytes. A target in `fuzz/` is one line, and `cargo test` runs the same bodies
//! on seeds, on mutations of them, and exhaustively on tiny inputs.

pub mod monitor;
pub mod selection;
mod wire;

pub use self::wire::{seeds as wire_seeds, wire};
