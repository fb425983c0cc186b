//! `mongodb+srv://` on smol: lookups over real sockets, clients of what they find, and hosts that change while a client lives.

extern crate alloc;

mod srv {
    mod clients;
    mod lookups;
    mod polling;
    mod support;
}
