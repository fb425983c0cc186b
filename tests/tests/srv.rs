//! What the specifications of seed lists in the DNS describe in words, over a name server on loopback.

extern crate alloc;

mod srv {
    mod polling;
    mod prose;
}
