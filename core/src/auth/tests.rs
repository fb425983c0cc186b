use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;

mod credential;
mod handshake;
mod messages;
mod secrets;

/// RFC 7677, section 3.
const SHA_256: Known = Known {
    mechanism: ScramMechanism::Sha256,
    nonce: "rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

/// A conversation of user "user" with password "pencil", worked out by others.
#[derive(Clone, Copy)]
struct Known {
    mechanism: ScramMechanism,
    nonce: &'static str,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

impl Known {
    fn nonce(&self) -> Nonce {
        Nonce::from_text(self.nonce).expect("a nonce")
    }

    fn scram(&self) -> Scram<'static> {
        Scram::new(self.mechanism, "user", "pencil", self.nonce()).expect("can be used")
    }
}

fn said(scram: &Scram<'_>) -> String {
    let mut sink = Vec::new();
    scram.write_message(&mut sink).expect("grows");
    String::from_utf8(sink).expect("text")
}
