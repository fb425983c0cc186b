//! `mongodb+srv://` on smol: lookups over real sockets, clients of the resulting hosts, and hosts
//! that change while a client exists.

extern crate alloc;

mod srv {
    mod clients;
    mod lookups;
    mod polling;
    mod support;
}
