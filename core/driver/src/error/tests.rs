use super::*;
use alloc::format;
use alloc::string::ToString;
use poolhouse_core::CertificateFault;

fn check_out(error: CheckOutError) -> OperationError {
    OperationError::check_out_of("db.example:27017", error)
}

fn establish_failed(cause: Cause, overloaded: bool) -> OperationError {
    check_out(CheckOutError::EstablishFailed { cause, overloaded })
}

fn refused(code: i32) -> OperationError {
    OperationError::Command { code, labels: Labels::NONE }
}

/// Exactly the codes that the topology treats as state changes, except the codes listed below.
#[test]
fn changes_of_state_are_the_same_here_and_in_the_topology() {
    for code in -1..20_000 {
        let is_change = StateChange::of_code(code).is_some();
        assert!(refused(code).is_transient() || !is_change, "{code}");
        let failed = establish_failed(Cause::Command { code }, false);
        assert_eq!(failed.is_retryable(), refused(code).is_transient(), "{code}");
        assert!(!refused(code).is_retryable(), "{code} alone says nothing of what has happened");
    }
    let others: alloc::vec::Vec<i32> =
        (0..20_000).filter(|code| refused(*code).is_transient() && StateChange::of_code(*code).is_none()).collect();
    assert_eq!(others, [6, 7, 89, 134, 262, 9001]);
}

#[test]
#[doc(alias("CMAP-67", "CMAP-95", "CMAP-96", "CMAP-97", "CMAP-98"))]
fn unsent_commands_may_be_retried() {
    let retryable = [
        check_out(CheckOutError::PoolClosed),
        check_out(CheckOutError::PoolCleared { cause: None }),
        establish_failed(Cause::Network, true),
        establish_failed(Cause::NetworkTimeout, false),
        establish_failed(Cause::Command { code: 11600 }, false),
        OperationError::Command { code: 1, labels: Labels::RETRYABLE_ERROR },
    ];
    for error in retryable {
        assert!(error.is_retryable(), "{error:?}");
    }
    let others = [
        check_out(CheckOutError::WaitQueueTimeout { usage: None }),
        check_out(CheckOutError::Cancelled),
        check_out(CheckOutError::Busy { waiting: 1 }),
        establish_failed(Cause::Command { code: 13 }, false),
        establish_failed(Cause::Certificate(CertificateFault::Expired), false),
        establish_failed(Cause::Authentication, false),
        OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE)),
        OperationError::Interrupted(ServerAddress::new("a")),
        OperationError::Timeout,
        OperationError::Closed,
        OperationError::Abandoned,
    ];
    for error in others {
        assert!(!error.is_retryable(), "{error:?}");
    }
}

/// The address precedes the text, which stays unchanged.
#[test]
#[doc(alias("CMAP-84", "CMAP-99"))]
fn errors_of_check_outs_and_interruptions_contain_the_servers_address() {
    let usage = poolhouse_core::pool::Usage { max_pool_size: 1, ..Default::default() };
    for error in [
        CheckOutError::PoolClosed,
        CheckOutError::PoolCleared { cause: Some(Cause::Network) },
        CheckOutError::WaitQueueTimeout { usage: None },
        CheckOutError::WaitQueueTimeout { usage: Some(usage) },
        CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true },
        CheckOutError::Busy { waiting: 1 },
    ] {
        assert_eq!(check_out(error).to_string(), format!("db.example:27017: {error}"));
        assert_eq!(check_out(error).check_out(), Some(&error));
        assert_eq!(OperationError::check_out_of("", error).to_string(), error.to_string(), "of no server");
    }
    let interrupted = OperationError::Interrupted(ServerAddress::new("[::1]:27017"));
    assert_eq!(interrupted.to_string(), "Connection to [::1]:27017 interrupted due to server monitor timeout");
    assert_eq!(interrupted.check_out(), None);
}

/// Without an allocator the text has room for addresses of usual length.
#[test]
fn long_address_is_shortened_at_a_char_boundary() {
    let cases = [
        ("", ""),
        ("255.255.255.255:65535", "255.255.255.255:65535"),
        ("23-bytes.example:270170", "23-bytes.example:270170"),
        ("24-bytes.example:2701701", "24-bytes.example:270..."),
        ("cluster0-shard-00-01.abcde.example:27017", "cluster0-shard-00-01..."),
        ("19-bytes-of-ascii--\u{e9}\u{e9}\u{e9}", "19-bytes-of-ascii--..."),
        ("18-bytes-of-ascii-\u{e9}\u{e9}\u{e9}", "18-bytes-of-ascii-\u{e9}..."),
        ("\u{1f600}\u{1f600}\u{1f600}\u{1f600}\u{1f600}\u{1f600}", "\u{1f600}\u{1f600}\u{1f600}\u{1f600}\u{1f600}..."),
    ];
    for (whole, short) in cases {
        assert_eq!(shorten(whole).as_str(), short, "of {whole}");
    }
}

#[test]
fn each_error_names_the_operation_and_the_server() {
    let address = ServerAddress::new("db.example:27017");
    let texts = [
        (check_out(CheckOutError::Cancelled), "db.example:27017: The check-out was cancelled by its caller"),
        (
            OperationError::from(ExchangeError::Network(poolhouse_core::Reason::NONE)),
            "the connection failed, or the server closed it",
        ),
        (
            OperationError::from(ExchangeError::Transport {
                cause: Cause::Certificate(CertificateFault::Revoked),
                reason: poolhouse_core::Reason::NONE,
            }),
            "the connection failed: certificate refused: it has been revoked",
        ),
        (OperationError::from(ExchangeError::NoMemory), "there is no memory for the reply"),
        (
            OperationError::from(ExchangeError::ReplyTooLarge { bytes: 9, limit: 8 }),
            "the reply of 9 bytes is larger than this side can hold, which is 8",
        ),
        (OperationError::Timeout, "the operation's deadline has passed"),
        (
            OperationError::Interrupted(address),
            "Connection to db.example:27017 interrupted due to server monitor timeout",
        ),
        (refused(13), "the command failed with code 13"),
        (OperationError::Broken(Cause::Protocol), "the connection failed before: wire protocol error"),
        (OperationError::Busy, "too many tasks wait for a suitable server"),
        (OperationError::Closed, "the client is closed"),
        (
            OperationError::Abandoned,
            "the client is closed: a task of its runner or executor was dropped while it was open",
        ),
        (OperationError::Forked, "the client was created before the fork of this process and belongs to the parent"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
    let nowhere = CheckOutFailure::new(CheckOutError::Cancelled, "");
    assert_eq!(nowhere.to_string(), "The check-out was cancelled by its caller", "no address, no colon");
}

/// No other error closes the connection.
#[test]
#[doc(alias = "CMAP-20")]
fn connection_is_closed_only_after_an_error_of_its_own() {
    let wire = poolhouse_wire::WireError::new(poolhouse_wire::WireErrorKind::Terminator, 0);
    let causes = [
        (OperationError::from(ExchangeError::Network(poolhouse_core::Reason::NONE)), Some(Cause::Network)),
        (
            OperationError::from(ExchangeError::Transport {
                cause: Cause::Protocol,
                reason: poolhouse_core::Reason::NONE,
            }),
            Some(Cause::Protocol),
        ),
        (OperationError::from(ExchangeError::Wire(wire)), Some(Cause::Protocol)),
        (OperationError::from(ExchangeError::NoMemory), Some(Cause::Resources)),
        (OperationError::from(ExchangeError::Encode(poolhouse_wire::EncodeError::Full)), None),
        (OperationError::Timeout, Some(Cause::NetworkTimeout)),
        (OperationError::Interrupted(ServerAddress::new("a")), Some(Cause::Interrupted)),
        (OperationError::Broken(Cause::Dns), Some(Cause::Dns)),
        (refused(13), None),
        (check_out(CheckOutError::PoolClosed), None),
        (OperationError::Busy, None),
        (OperationError::Closed, None),
        (OperationError::Abandoned, None),
        (OperationError::Forked, None),
    ];
    for (error, cause) in causes {
        assert_eq!(error.connection_cause(), cause, "{error}");
        assert_eq!(error.check_out().is_some(), matches!(error, OperationError::CheckOut(_)), "{error}");
    }
}

#[test]
fn error_of_a_connection_is_transient_if_another_connection_may_succeed() {
    for (cause, is_transient) in [
        (Cause::Network, true),
        (Cause::NetworkTimeout, true),
        (Cause::Interrupted, true),
        (Cause::Cancelled, false),
        (Cause::Protocol, false),
    ] {
        assert_eq!(OperationError::Broken(cause).is_transient(), is_transient, "{cause}");
    }
    let interrupted = ServerAddress::new("db.example:27017");
    assert_eq!(interrupted.as_str(), "db.example:27017");
    assert!(OperationError::Interrupted(interrupted).is_transient());
    assert!(
        establish_failed(Cause::Command { code: 13 }, true).is_retryable(),
        "what is overloaded may be asked again"
    );
}
