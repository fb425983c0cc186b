//! The client on smol against a real mongod, given by `MONGOD`.

extern crate alloc;

#[path = "mongod/suite.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    suite::main()
}
