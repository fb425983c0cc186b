use super::establish_error;
use crate::server::{ObjectId, TopologyVersion};
use crate::topology::{AppErrorKind, CommandError, ReplyError};
use crate::wire::Phase;
use crate::wire::handshake::HandshakeError;
use crate::{Cause, CertificateFault};

#[test]
fn a_failed_handshake_is_to_a_topology_what_its_cause_says() {
    let of = |cause| HandshakeError::new(Phase::Hello, cause);
    assert_eq!(establish_error(&of(Cause::Network)), AppErrorKind::Network);
    assert_eq!(establish_error(&of(Cause::NetworkTimeout)), AppErrorKind::NetworkTimeout);
    let topology_version = Some(TopologyVersion { process_id: ObjectId([1; 12]), counter: 2 });
    let refused = HandshakeError { topology_version, ..of(Cause::Command { code: 91 }) };
    let command = Some(ReplyError { code: Some(91), message: "" });
    let expected = CommandError { command, write_concern: None, topology_version };
    assert_eq!(establish_error(&refused), AppErrorKind::Command(expected));
    for cause in [Cause::Dns, Cause::Authentication, Cause::Protocol, Cause::Certificate(CertificateFault::Expired)] {
        assert_eq!(establish_error(&of(cause)), AppErrorKind::Other(cause));
        assert_eq!(establish_error(&of(cause)).cause(), cause);
    }
}

#[test]
fn the_cause_of_a_reply_with_two_errors_is_that_of_the_command() {
    let error = |code| Some(ReplyError { code, message: "not told" });
    let cause = |command, write_concern| {
        AppErrorKind::Command(CommandError { command, write_concern, topology_version: None }).cause()
    };
    assert_eq!(cause(error(Some(91)), error(Some(64))), Cause::Command { code: 91 });
    assert_eq!(cause(None, error(Some(64))), Cause::Command { code: 64 });
    assert_eq!(cause(error(None), None), Cause::Command { code: 0 });
    assert_eq!(AppErrorKind::Network.cause(), Cause::Network);
    assert_eq!(AppErrorKind::NetworkTimeout.cause(), Cause::NetworkTimeout);
}
