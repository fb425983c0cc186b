//! The client on smol as its users call it: options, databases, commands, snapshots, error
//! messages.

extern crate alloc;

mod api {
    mod commands;
    mod errors;
    mod futures;
    mod metadata;
    mod options;
    mod snapshots;
    mod support;
}
