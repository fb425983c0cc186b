use super::*;

#[test]
fn reference_conversation_completes_in_two_rounds() {
    let mut scram = SHA_256.scram();
    assert_eq!(said(&scram), format!("n,,n=user,r={}", SHA_256.nonce));
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    assert_eq!(said(&scram), SHA_256.client_final);
    assert_eq!(said(&scram), SHA_256.client_final, "writing changes nothing");
    assert_eq!(tell(&mut scram, SHA_256.server_final.as_bytes(), true), Ok(Round::Done));
    assert_eq!(said(&scram), "");
    assert_eq!(tell(&mut scram, SHA_256.server_final.as_bytes(), true), Err(AuthError::Ended));
}

#[test]
fn server_that_is_not_done_receives_one_empty_message() {
    let at_the_end = || {
        let mut scram = SHA_256.scram();
        assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
        assert_eq!(tell(&mut scram, SHA_256.server_final.as_bytes(), false), Ok(Round::Another));
        assert_eq!(said(&scram), "");
        scram
    };
    assert_eq!(tell(&mut at_the_end(), b"", true), Ok(Round::Done));
    assert_eq!(tell(&mut at_the_end(), b"", false), Err(AuthError::NotDone));
    assert_eq!(tell(&mut at_the_end(), b"v=AAAA", true), Err(AuthError::PayloadUnexpected));
}

/// Every message is refused after an error, because the conversation cannot continue.
#[test]
fn error_ends_the_conversation() {
    let mut scram = SHA_256.scram();
    assert_eq!(tell(&mut scram, b"", false), Err(AuthError::AttributeMalformed { name: None }));
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Err(AuthError::Ended));
    let mut scram = SHA_256.scram();
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), true), Err(AuthError::DoneTooEarly));
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Err(AuthError::Ended));
}

#[test]
fn malformed_first_messages_are_refused_with_the_fault() {
    use AuthError::{
        AttributeMalformed, AttributeMisplaced, AttributeMissing, IterationsTooFew, IterationsTooMany,
        MandatoryExtension, SaltTooLong, ServerError, ServerNonce, ServerNonceTooLong,
    };
    let nonce = format!("{}server", SHA_256.nonce);
    let (n, salt) = (nonce.as_str(), "W22ZaJ0SNY7soEsUEjb6gQ==");
    let too_many = IterationsTooMany { max: ITERATIONS_MAX };
    let malformed = |name| AttributeMalformed { name: Some(name) };
    let missing = |name| AttributeMissing { name };
    let misplaced = |name| AttributeMisplaced { name };
    let cases = [
        (String::new(), AttributeMalformed { name: None }),
        ("r".to_string(), AttributeMalformed { name: None }),
        ("1=2".to_string(), AttributeMalformed { name: None }),
        ("r=".to_string(), malformed('r')),
        (format!("r={n}"), missing('s')),
        (format!("r={n},"), AttributeMalformed { name: None }),
        (format!("r={n},s={salt}"), missing('i')),
        (format!("r={n},s={salt},"), AttributeMalformed { name: None }),
        (format!("r={n},s={salt},i="), malformed('i')),
        (format!("r={n},s={salt},i=4096,"), AttributeMalformed { name: None }),
        (format!("s={salt},r={n},i=4096"), missing('r')),
        (format!("r={n},i=4096,s={salt}"), missing('s')),
        (format!("r={n},r={n},s={salt},i=4096"), missing('s')),
        (format!("r={n},s={salt},s={salt},i=4096"), missing('i')),
        (format!("r={n},s={salt},i=4096,i=4096"), misplaced('i')),
        (format!("r={n},s={salt},i=4096,r={n}"), misplaced('r')),
        (format!("r={n},s={salt},i=4096,m=x"), misplaced('m')),
        (format!("r={n},s={salt},i=4096,x"), AttributeMalformed { name: None }),
        (format!("r={n},s={salt},i=4096,x="), malformed('x')),
        (format!("r={n},s={salt},i=4095"), IterationsTooFew { found: 4095 }),
        (format!("r={n},s={salt},i=1"), IterationsTooFew { found: 1 }),
        (format!("r={n},s={salt},i=0"), IterationsTooFew { found: 0 }),
        (format!("r={n},s={salt},i=04096"), malformed('i')),
        (format!("r={n},s={salt},i=-4096"), malformed('i')),
        (format!("r={n},s={salt},i=+4096"), malformed('i')),
        (format!("r={n},s={salt},i=4096.0"), malformed('i')),
        (format!("r={n},s={salt},i=0x1000"), malformed('i')),
        (format!("r={n},s={salt},i=1000001"), too_many),
        (format!("r={n},s={salt},i=2147483648"), too_many),
        (format!("r={n},s={salt},i=4294967296"), too_many),
        (format!("r={n},s={salt},i={}", "9".repeat(5000)), too_many),
        (format!("r={n},s=!!!!,i=4096"), malformed('s')),
        (format!("r={n},s=W22ZaJ0SNY7soEsUEjb6gQ,i=4096"), malformed('s')),
        (format!("r={n},s={},i=4096", "A".repeat(SALT_BYTES_MAX * 2)), SaltTooLong),
        (format!("r={n},s={},i=4096", "A".repeat(172)), SaltTooLong),
        (format!("r={},s={salt},i=4096", SHA_256.nonce), ServerNonce),
        (format!("r=x{n},s={salt},i=4096"), ServerNonce),
        (format!("r={},s={salt},i=4096", &n[..8]), ServerNonce),
        (format!("r={}x,s={salt},i=4096", SHA_256.nonce.to_lowercase()), ServerNonce),
        (format!("r={n} ,s={salt},i=4096"), malformed('r')),
        (format!("r={n}\u{e9},s={salt},i=4096"), malformed('r')),
        (format!("r={n}{},s={salt},i=4096", "x".repeat(SERVER_NONCE_BYTES_MAX)), ServerNonceTooLong),
        (format!("m=x,r={n},s={salt},i=4096"), MandatoryExtension),
        ("e=unknown-user".to_string(), ServerError),
        ("e=".to_string(), ServerError),
    ];
    for (message, error) in cases {
        assert_eq!(tell(&mut SHA_256.scram(), message.as_bytes(), false), Err(error), "{message:.200}");
    }
}

/// Every proper prefix of a valid message is refused. One that ends within the digits of the
/// iteration count is well-formed, but its count is too small.
#[test]
fn truncated_messages_are_refused() {
    for end in 0..SHA_256.server_first.len() {
        assert!(tell(&mut SHA_256.scram(), &SHA_256.server_first.as_bytes()[..end], false).is_err(), "{end}");
    }
    for end in 0..SHA_256.server_final.len() {
        let mut scram = SHA_256.scram();
        assert!(tell(&mut scram, SHA_256.server_first.as_bytes(), false).is_ok());
        assert!(tell(&mut scram, &SHA_256.server_final.as_bytes()[..end], true).is_err(), "{end}");
    }
}

#[test]
fn optional_extensions_are_ignored() {
    let mut scram = SHA_256.scram();
    let first = format!("{},x=1,Y=a=b", SHA_256.server_first);
    assert_eq!(tell(&mut scram, first.as_bytes(), false), Ok(Round::Another));
    // Extensions are part of the text that both sides sign.
    let signature = SHA_256.server_final.as_bytes();
    assert_eq!(tell(&mut scram, signature, true), Err(AuthError::ServerSignature));

    let mut scram = SHA_256.scram();
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    let last = format!("{},x=1", SHA_256.server_final);
    assert_eq!(tell(&mut scram, last.as_bytes(), true), Ok(Round::Done));
}

#[test]
fn last_messages_without_the_right_signature_are_refused() {
    use AuthError::{AttributeMalformed, AttributeMisplaced, AttributeMissing, ServerError, ServerSignature};
    let good = SHA_256.server_final;
    let malformed = AttributeMalformed { name: Some('v') };
    let cases = [
        ("".to_string(), AttributeMalformed { name: None }),
        ("v=".to_string(), malformed),
        ("e=invalid-proof".to_string(), ServerError),
        ("x=1".to_string(), AttributeMissing { name: 'v' }),
        (format!("x=1,{good}"), AttributeMissing { name: 'v' }),
        (format!("{good},{good}"), AttributeMisplaced { name: 'v' }),
        (format!("{good},e=other-error"), AttributeMisplaced { name: 'e' }),
        (format!("{good},"), AttributeMalformed { name: None }),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4".to_string(), malformed),
        ("v=????".to_string(), malformed),
        (format!("v={}", "A".repeat(4000)), malformed),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=".to_string(), malformed),
        ("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_string(), ServerSignature),
        ("v=6rri".to_string(), ServerSignature),
        // The right length for the other mechanism.
        ("v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=".to_string(), ServerSignature),
    ];
    for (message, error) in cases {
        let mut scram = SHA_256.scram();
        assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
        assert_eq!(tell(&mut scram, message.as_bytes(), true), Err(error), "{message:.100}");
    }
}

#[test]
fn wrong_password_makes_another_proof_and_rejects_the_servers_signature() {
    let mut scram = Scram::new(ScramMechanism::Sha256, "user", "Pencil", SHA_256.nonce()).expect("can be used");
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    assert_ne!(said(&scram), SHA_256.client_final);
    let signature = SHA_256.server_final.as_bytes();
    assert_eq!(tell(&mut scram, signature, true), Err(AuthError::ServerSignature));
}

#[test]
fn host_sets_the_maximum_of_iterations() {
    let first = SHA_256.server_first.replace("i=4096", "i=5000");
    let with_max = |max| tell(&mut SHA_256.scram().with_iterations_max(max), first.as_bytes(), false);
    assert_eq!(with_max(5000), Ok(Round::Another));
    assert_eq!(with_max(4999), Err(AuthError::IterationsTooMany { max: 4999 }));
    // The caller cannot set the minimum below the library's own minimum.
    let weak = SHA_256.server_first.replace("i=4096", "i=4095");
    let mut scram = SHA_256.scram().with_iterations_max(1);
    assert_eq!(tell(&mut scram, weak.as_bytes(), false), Err(AuthError::IterationsTooFew { found: 4095 }));
}

#[test]
fn only_the_user_name_is_escaped() {
    let first = |user| {
        let scram = Scram::new(ScramMechanism::Sha256, user, "p", SHA_256.nonce()).expect("can be used");
        said(&scram)
    };
    let expected = |user: &str| format!("n,,n={user},r={}", SHA_256.nonce);
    assert_eq!(first("a=b,c"), expected("a=3Db=2Cc"));
    assert_eq!(first(",=="), expected("=2C=3D=3D"));
    assert_eq!(first("=2C"), expected("=3D2C"));
    assert_eq!(first("us\u{e9}r \u{2168}"), expected("us\u{e9}r \u{2168}"));
}

/// The keys of a conversation save the next one the derivation, but only if they fit.
#[test]
fn keys_are_reused_for_the_same_salt_and_iterations() {
    let mut scram = SHA_256.scram();
    assert!(scram.keys().is_none());
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    let keys = scram.keys().expect("made").clone();
    assert_eq!((keys.mechanism(), keys.iterations(), keys.salt().len()), (ScramMechanism::Sha256, 4096, 16));
    assert!(keys.fit(ScramMechanism::Sha256, keys.salt(), 4096));
    assert!(!keys.fit(ScramMechanism::Sha1, keys.salt(), 4096));
    assert!(!keys.fit(ScramMechanism::Sha256, keys.salt(), 4097));
    assert!(!keys.fit(ScramMechanism::Sha256, &[], 4096));

    // With the right keys the password is not read.
    let other = || Scram::new(ScramMechanism::Sha256, "user", "other", SHA_256.nonce()).expect("can be used");
    let mut scram = other().with_keys(Some(keys.clone()));
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    assert_eq!(said(&scram), SHA_256.client_final);
    // With more iterations than the keys have, it is read.
    let mut scram = other().with_keys(Some(keys));
    let first = SHA_256.server_first.replace("i=4096", "i=4097");
    assert_eq!(tell(&mut scram, first.as_bytes(), false), Ok(Round::Another));
    assert_eq!(scram.keys().expect("made anew").iterations(), 4097);

    let derived = ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", b"salt", 4095);
    assert_eq!(derived.expect_err("too few"), AuthError::IterationsTooFew { found: 4095 });
    let derived = ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", &[0; SALT_BYTES_MAX + 1], 4096);
    assert_eq!(derived.expect_err("too long"), AuthError::SaltTooLong);
}

/// One call does one bounded step of the work, whatever iteration count the server requires.
/// Matching keys of another conversation replace all of the work.
#[test]
fn work_is_done_in_steps_unless_keys_are_offered() {
    let at_work = || {
        let mut scram = SHA_256.scram();
        assert_eq!(scram.work(), Err(AuthError::Ended), "none is asked for yet");
        assert_eq!(scram.handle_message(SHA_256.server_first.as_bytes(), false), Ok(Round::Work));
        assert!(scram.owes_work());
        scram
    };
    let mut scram = at_work();
    for step in 1..4096 / ITERATIONS_PER_STEP {
        assert_eq!(scram.work(), Ok(Round::Work), "{step}");
        assert_eq!(said(&scram), "");
    }
    assert_eq!(scram.work(), Ok(Round::Another));
    assert!(!scram.owes_work());
    assert_eq!(said(&scram), SHA_256.client_final);
    let keys = scram.keys().expect("made").clone();
    assert!(!scram.offer_keys(&keys), "none are wanted any more");

    let mut scram = at_work();
    let salted = |salt: &[u8], iterations| {
        ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", salt, iterations).expect("allowed")
    };
    assert!(!scram.offer_keys(&salted(b"another", 4096)));
    assert!(!scram.offer_keys(&salted(keys.salt(), 4097)));
    assert_eq!(scram.work(), Ok(Round::Work));
    assert!(scram.offer_keys(&keys), "also in the middle");
    assert_eq!(said(&scram), SHA_256.client_final);
    assert_eq!(tell(&mut scram, SHA_256.server_final.as_bytes(), true), Ok(Round::Done));

    let mut scram = at_work();
    assert_eq!(scram.handle_message(SHA_256.server_final.as_bytes(), true), Err(AuthError::Ended), "not asked for");
    assert_eq!(scram.work(), Err(AuthError::Ended));
}

/// The longest message that the limits of its parts allow is accepted; extensions have little room.
#[test]
fn first_message_of_a_server_is_limited_in_length() {
    let nonce = format!("{:x<1$}", SHA_256.nonce, SERVER_NONCE_BYTES_MAX);
    let salt = format!("{}g==", "A".repeat(SALT_BYTES_MAX.div_ceil(3) * 4 - 3));
    let longest = format!("r={nonce},s={salt},i=4096");
    assert_eq!(SHA_256.scram().handle_message(longest.as_bytes(), false), Ok(Round::Work));
    let extended = format!("{longest},x={}", "y".repeat(512));
    assert_eq!(SHA_256.scram().handle_message(extended.as_bytes(), false), Err(AuthError::MessageTooLong));
}

#[test]
fn nonces_are_printable_and_differ_with_their_entropy() {
    let nonce = Nonce::from_entropy([0xff; ENTROPY_BYTES]);
    assert_eq!(nonce.as_bytes().len(), 32);
    assert!(nonce.as_bytes().is_ascii());
    assert_ne!(Nonce::from_entropy([1; ENTROPY_BYTES]), Nonce::from_entropy([2; ENTROPY_BYTES]));
    let max = "x".repeat(NONCE_BYTES_MAX + 1);
    for text in ["", "0123456789abcde", "0123456789abcde,", "0123456789abcde ", "0123456789abcd\u{e9}", &max] {
        assert_eq!(Nonce::from_text(text), Err(AuthError::NonceProhibited), "{text}");
        assert_eq!(SHA_256.nonce().with_second(text), Err(AuthError::NonceProhibited), "{text}");
    }
    assert!(Nonce::from_text("0123456789abcdef").is_ok());
    assert!(Nonce::from_text(&max[1..]).is_ok());
    assert_eq!(SHA_256.nonce().with_second(SHA_256.nonce), Err(AuthError::NonceProhibited), "the same again");
}

/// The first nonce has been sent when the second one is needed. It must not help an observer to
/// predict the second.
#[test]
fn second_nonce_is_not_derived_from_the_first() {
    use base64ct::{Base64, Encoding};
    use sha2::{Digest, Sha256};

    let entropy = [0xA5; ENTROPY_BYTES];
    let nonce = Nonce::from_entropy(entropy);
    let second = nonce.second().expect("made of the same entropy");
    assert_eq!((second.as_bytes().len(), second.second()), (32, None));
    assert_ne!(second.as_bytes(), nonce.as_bytes());
    let base64 = |bytes: &[u8]| Base64::encode_string(&bytes[..ENTROPY_BYTES]).into_bytes();
    let of_label =
        |label: &[u8], secret: &[u8]| base64(&Sha256::new().chain_update(label).chain_update(secret).finalize());
    // The entropy itself is not sent, and the second nonce is not derived from the first.
    assert_ne!(nonce.as_bytes(), base64(&entropy));
    let label = b"poolhouse second nonce";
    assert_ne!(second.as_bytes(), of_label(label, nonce.as_bytes()));
    assert_eq!(second.as_bytes(), of_label(label, &entropy));
    assert_eq!(nonce.as_bytes(), of_label(b"poolhouse first nonce", &entropy));
}

#[test]
fn nonce_from_text_has_a_second_if_it_is_supplied() {
    let nonce = SHA_256.nonce();
    assert_eq!(nonce.second(), None);
    let second = nonce.with_second("another-one-of-theirs").expect("a nonce").second();
    assert_eq!(second, Nonce::from_text("another-one-of-theirs").ok());
}

#[test]
fn debug_of_a_conversation_shows_its_state_only() {
    let shown = |scram: &Scram<'_>, state: &str| {
        let shown = format!("{scram:?}");
        assert_eq!(shown, format!("Scram {{ mechanism: Sha256, state: \"{state}\", .. }}"));
    };
    let mut scram = SHA_256.scram();
    shown(&scram, "First");
    assert_eq!(scram.handle_message(SHA_256.server_first.as_bytes(), false), Ok(Round::Work));
    shown(&scram, "Stretching");
    while scram.work() == Ok(Round::Work) {}
    shown(&scram, "Final");
    assert_eq!(tell(&mut scram, SHA_256.server_final.as_bytes(), false), Ok(Round::Another));
    shown(&scram, "Empty");
    assert_eq!(tell(&mut scram, b"", true), Ok(Round::Done));
    shown(&scram, "Ended");
    assert_eq!(ScramMechanism::Sha1.to_string(), "SCRAM-SHA-1");
    assert_eq!(AuthError::AttributeMalformed { name: None }.to_string(), "malformed attribute");
}
