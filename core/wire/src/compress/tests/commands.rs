use super::*;

/// Wire Compression, "Messages not allowed to be compressed".
#[test]
fn hello_and_commands_with_secrets_are_never_compressed() {
    for name in [
        "hello",
        "isMaster",
        "ismaster",
        "saslStart",
        "saslContinue",
        "getnonce",
        "authenticate",
        "createUser",
        "updateUser",
        "copydbSaslStart",
        "copydbgetnonce",
        "copydb",
    ] {
        assert!(!is_compressible(&request(name, Flags::NONE, "x")), "{name}");
        assert!(!is_compressible(&request(&name.to_uppercase(), Flags::CHECKSUM_PRESENT, "x")), "{name}");
    }
}

#[test]
fn every_other_command_is_compressed() {
    for name in ["ping", "find", "hell", "hellos", "dropUser", "usersInfo", "saslstar", "copydbs", "", "isMasterX"] {
        assert!(is_compressible(&request(name, Flags::NONE, "x")), "{name}");
    }
}

/// A body after document sequences is found as well.
#[test]
fn command_is_found_after_document_sequences() {
    for (name, expected) in [("insert", true), ("saslStart", false)] {
        let mut sink = Vec::new();
        encode_message(&mut sink, Outgoing::request(1), &Limits::DEFAULT, |message| {
            message.sequence("documents", |documents| documents.document(|d| d.int32("hello", 1).map(drop)))?;
            message.body(|body| body.int32(name, 1).map(drop))
        })
        .expect("room");
        assert_eq!(is_compressible(&sink), expected, "{name}");
    }
}

/// Bytes that are not a whole message are not compressed, and cut messages cause no panic.
#[test]
fn invalid_messages_are_not_compressed() {
    let whole = request("ping", Flags::NONE, "x");
    for end in 0..20 {
        assert!(!is_compressible(&whole[..end]), "{end}");
    }
    let mut query = whole.clone();
    query[12..16].copy_from_slice(&2004_i32.to_le_bytes());
    assert!(!is_compressible(&query));
    let mut section = whole;
    section[20] = 2;
    assert!(!is_compressible(&section));
}

/// The name of a command after document sequences is read only in whole messages.
#[test]
fn truncated_message_with_sequences_is_not_compressed() {
    let mut sink = Vec::new();
    encode_message(&mut sink, Outgoing::request(1), &Limits::DEFAULT, |message| {
        message.sequence("documents", |documents| documents.document(|d| d.int32("n", 1).map(drop)))?;
        message.body(|body| body.int32("insert", 1).map(drop))
    })
    .expect("room");
    for end in 0..=sink.len() {
        assert_eq!(is_compressible(&sink[..end]), end == sink.len(), "{end}");
    }
}
