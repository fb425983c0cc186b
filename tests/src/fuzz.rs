//! Fuzz bodies: functions over bytes. A target in `fuzz/` is one line, and `cargo test` runs the
//! same bodies on seeds, on mutations of them, and exhaustively on tiny inputs.

pub mod bson;
pub mod control;
pub mod conversation;
pub mod cql;
pub mod decompress;
pub mod dns;
pub mod hello;
pub mod lengths;
pub mod monitor;
pub mod monitor_bytes;
pub mod mutate;
pub mod mux;
pub mod pool;
pub mod scram;
pub mod selection;
pub mod topology;
pub mod uri;
pub mod wire;

pub use self::bson::bson;
pub use self::control::control;
pub use self::conversation::conversation;
pub use self::cql::cql;
pub use self::cql::values::values as cql_values;
pub use self::decompress::decompress;
pub use self::dns::dns;
pub use self::hello::hello;
pub use self::monitor::monitor;
pub use self::monitor_bytes::monitor_bytes;
pub use self::mux::mux;
pub use self::pool::pool;
pub use self::scram::scram;
pub use self::selection::selection;
pub use self::topology::topology;
pub use self::uri::uri;
pub use self::wire::wire;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Each target, with its name in `fuzz/fuzz_targets`.
pub const TARGETS: [(&str, Body); 17] = [
    ("bson", bson),
    ("control", control),
    ("conversation", conversation),
    ("cql_values", cql_values),
    ("decompress", decompress),
    ("dns", dns),
    ("hello", hello),
    ("monitor", monitor),
    ("monitor_bytes", monitor_bytes),
    ("mux", mux),
    ("pool", pool),
    ("scram", scram),
    ("selection", |data| {
        selection(data);
    }),
    ("topology", topology),
    ("uri", uri),
    ("wire", wire),
    ("wire_cql", cql),
];
