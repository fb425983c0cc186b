//! The client on smol as its users write against it: options, databases, commands, snapshots, what errors say.

extern crate alloc;

mod api {
    mod commands;
    mod errors;
    mod futures;
    mod options;
    mod snapshots;
    mod support;
}
