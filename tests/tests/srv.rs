//! The prose tests of the specifications of DNS seed lists, over a name server on loopback.

extern crate alloc;

mod srv {
    mod polling;
    mod prose;
}
