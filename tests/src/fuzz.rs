//! Fuzz bodies: ordinary functions over bytes. A target in `fuzz/` is one line, and `cargo test` runs the same bodies
//! on seeds, on mutations of them, and exhaustively on tiny inputs.

pub mod control;
pub mod cql;
pub mod decompress;
pub mod dns;
pub mod monitor;
pub mod mux;
pub mod pool;
pub mod scram;
pub mod selection;
pub mod topology;
pub mod uri;
pub mod wire;

pub use self::control::control;
pub use self::cql::cql;
pub use self::decompress::decompress;
pub use self::dns::dns;
pub use self::monitor::monitor;
pub use self::mux::mux;
pub use self::pool::pool;
pub use self::scram::scram;
pub use self::selection::selection;
pub use self::topology::topology;
pub use self::uri::uri;
pub use self::wire::wire;
