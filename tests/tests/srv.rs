//! What the specifications of seed lists in the DNS describe in words, over a name server on loopback.

mod srv {
    mod polling;
    mod prose;
}
