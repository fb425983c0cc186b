use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use poolhouse_wire::Authenticator;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};

mod credential;
mod handshake;
mod messages;
mod ring;
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

/// A reference conversation of user "user" with password "pencil", computed by another
/// implementation.
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

/// Passes a message to the SCRAM client, and does the work that it requires.
fn tell(scram: &mut Scram<'_>, message: &[u8], done: bool) -> Result<Round, AuthError> {
    let mut round = scram.handle_message(message, done);
    while round == Ok(Round::Work) {
        assert_eq!(said(scram), "", "nothing is due before");
        round = scram.work();
    }
    assert_eq!(scram.work(), Err(AuthError::Ended), "no more to do");
    round
}

fn said(scram: &Scram<'_>) -> String {
    let mut sink = Vec::new();
    scram.write_message(&mut sink).expect("grows");
    String::from_utf8(sink).expect("text")
}
