//! Fuzz bodies: ordinary functions over bytes. A target in `fuzz/` is one line, and `cargo test` runs the same bodies
//! on seeds, on mutations of them, and exhaustively on tiny inputs.

mod control;
pub mod monitor;
pub mod pool;
pub mod topology;
mod wire;

pub use self::control::control;
pub use self::wire::{seeds as wire_seeds, wire};
