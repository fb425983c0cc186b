use super::*;

/// An authentication that waits for keys with this salt.
fn at_work(salt: &str) -> Authentication<'static> {
    let credential = Credential::new("user", "pencil").mechanism(Mechanism::SCRAM_SHA_256);
    let options = AuthenticationOptions { nonce: SHA_256.nonce(), ..AuthenticationOptions::new([0; ENTROPY_BYTES]) };
    let mut authentication = Authentication::new(credential, options).expect("can be used");
    let first = SHA_256.server_first.replace("W22ZaJ0SNY7soEsUEjb6gQ==", salt);
    let mut reply = Vec::new();
    let written = DocumentWriter::write(&mut reply, |reply| {
        reply.int32("conversationId", 1)?.boolean("done", false)?.binary("payload", 0, first.as_bytes()).map(drop)
    });
    written.expect("grows");
    let reply = RawDocument::new(&reply).expect("well-formed");
    assert_eq!(authentication.handle_reply(reply), Ok(Round::Work));
    authentication
}

fn worked_out(salt: &str) -> Authentication<'static> {
    let mut authentication = at_work(salt);
    while authentication.work() == Ok(Round::Work) {}
    authentication
}

#[test]
fn keys_are_stored_once_and_the_oldest_are_replaced() {
    let salts = ["AAAA", "BBBB", "CCCC", "DDDD", "EEEE"];
    let mut ring = KeyRing::new();
    assert!(ring.is_empty() && !ring.spare(&mut at_work(salts[0])));
    ring.keep(&at_work(salts[0]));
    assert!(ring.is_empty(), "nothing is worked out yet");
    for salt in &salts[..KEYS_MAX] {
        ring.keep(&worked_out(salt));
        ring.keep(&worked_out(salt));
    }
    assert_eq!((ring.len(), ring.is_empty()), (KEYS_MAX, false));
    for salt in &salts[..KEYS_MAX] {
        let mut authentication = at_work(salt);
        assert!(ring.spare(&mut authentication), "{salt}");
        assert_eq!(authentication.work(), Ok(Round::Another), "that it was spared is noticed here");
        assert!(!ring.spare(&mut authentication), "once is enough");
    }
    ring.keep(&worked_out(salts[4]));
    let known: Vec<bool> = salts.iter().map(|salt| ring.spare(&mut at_work(salt))).collect();
    assert_eq!(known, [false, true, true, true, true]);
    ring.keep(&worked_out(salts[0]));
    let known: Vec<bool> = salts.iter().map(|salt| ring.spare(&mut at_work(salt))).collect();
    assert_eq!(known, [true, false, true, true, true]);
    assert_eq!(format!("{ring:?}"), "KeyRing(4 keys)");
}
