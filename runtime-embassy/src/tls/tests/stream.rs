//! Data arrives unchanged through a session, with memory of any size.

use alloc::vec::Vec;
use core::task::{Context, Waker};

use embedded_io_async::{Read, Write};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, ClientCheck, Holder, Versions};
use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use super::super::options::{MaxFragment, TlsIdentity};
use super::super::session::Session;
use super::support::{
    Fixture, HOST, Memory, Wire, check, der, leak, options, random, run, run_for, shows_identity, speaks,
};

pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap()).collect()
}

fn receive<S: Read + Write>(session: &mut Session<'_, S>, count: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let goes_on = run(session.read(|bytes| {
            // Takes only a part of the data.
            let taken = bytes.len().min(700);
            heard.extend_from_slice(&bytes[..taken]);
            taken
        }));
        assert!(goes_on.unwrap());
    }
    heard
}

#[test]
fn bytes_arrive_whole_in_pieces_of_any_size() {
    let fixture = Fixture::new();
    let server = speaks(fixture.server(), Versions::Tls13);
    for (chunk, count) in [(1, 3000), (97, 100_000), (usize::MAX, 1_000_000)] {
        // The smallest possible send buffer.
        let mut memory = Memory::of(16640, 640);
        let mut session = memory.session(Wire::to(&server).with(|far| far.chunk = chunk));
        run(session.open(HOST, &fixture.config(), random)).unwrap();
        let sent = pattern(count);
        run(session.write_all(&sent)).unwrap();
        run(session.flush()).unwrap();
        assert!(receive(&mut session, count) == sent, "{chunk}");
    }
}

#[test]
fn memory_of_a_session_is_reusable_after_any_end() {
    let fixture = Fixture::new();
    let server = speaks(fixture.server(), Versions::Tls13);
    let stranger = shows_identity(&Holder::root("stranger").issue(&CertificateRequest::server(&[HOST])).identity());
    let mut memory = Memory::new();
    for round in 0..4 {
        {
            // A session that is dropped during the handshake or after it.
            memory.watch = super::super::watch::Watch::new();
            let mut session = memory.session(Wire::to(&server).with(|far| {
                far.patient = true;
                far.cut = Some(300 * round);
            }));
            assert!(run_for(session.open(HOST, &fixture.config(), random), 10).is_none() || round == 3);
        }
        memory.watch = super::super::watch::Watch::new();
        let refused = run(memory.session(Wire::to(&stranger)).open(HOST, &fixture.config(), random));
        assert_eq!(refused, Err(Cause::Certificate(CertificateFault::UnknownIssuer)));
        memory.watch = super::super::watch::Watch::new();
        let mut session = memory.session(Wire::to(&server));
        run(session.open(HOST, &fixture.config(), random)).unwrap();
        run(session.write_all(b"hello")).unwrap();
        run(session.flush()).unwrap();
        assert_eq!(receive(&mut session, 5), b"hello");
    }
}

#[test]
fn close_notify_is_an_end_and_its_absence_is_an_error() {
    let fixture = Fixture::new();
    for announced in [false, true] {
        let mut memory = Memory::new();
        let wire = Wire::to(&speaks(fixture.server(), Versions::Tls13));
        let far = wire.far();
        let mut session = memory.session(wire);
        run(session.open(HOST, &fixture.config(), random)).unwrap();
        far.borrow_mut().say(b"last words");
        if announced {
            far.borrow_mut().end();
        }
        assert_eq!(receive(&mut session, 10), b"last words");
        let expected = if announced { Ok(false) } else { Err(Cause::Network) };
        assert_eq!(run(session.read(<[u8]>::len)), expected);
    }
}

#[test]
fn close_notify_is_sent_at_once_or_not_at_all() {
    let fixture = Fixture::new();
    for (is_stuck, is_torn, expected) in [(false, false, true), (true, false, false), (false, true, false)] {
        let mut memory = Memory::new();
        let wire = Wire::to(&speaks(fixture.server(), Versions::Tls13));
        let far = wire.far();
        let mut session = memory.session(wire);
        run(session.open(HOST, &fixture.config(), random)).unwrap();
        if is_torn {
            far.borrow_mut().stuck = true;
            run(session.write_all(b"x")).unwrap();
            assert_eq!(run_for(session.flush(), 3), None);
        }
        far.borrow_mut().stuck = is_stuck;
        session.goodbye(&mut Context::from_waker(Waker::noop()));
        assert_eq!(far.borrow().said_goodbye, expected);
        assert_eq!(far.borrow().failure, None);
    }
}

/// The identity of a client: its certificate, and its key in SEC 1 form.
fn identity_of(holder: &Holder) -> TlsIdentity {
    let key = KeyPair::from_pem(&holder.identity().key).unwrap();
    // A PKCS#8 key is the SEC 1 key with a prefix of fixed length.
    let PrivateKeyDer::Pkcs8(envelope) = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap() else {
        unreachable!()
    };
    let at = envelope.secret_pkcs8_der().windows(5).position(|window| window == [2, 1, 1, 4, 0x20]).unwrap() - 2;
    TlsIdentity {
        certificate: leak(der(&holder.certificate()).as_ref().to_vec().into_boxed_slice()),
        key: leak(envelope.secret_pkcs8_der()[at..].to_vec().into_boxed_slice()),
    }
}

#[test]
fn server_that_asks_for_a_certificate_gets_it() {
    let fixture = Fixture::new();
    let stranger = Holder::root("stranger");
    let refused = Err(Cause::Certificate(CertificateFault::RefusedByPeer));
    let asks = |required| {
        let mut server = fixture.server();
        server.clients = Some(ClientCheck { authority: fixture.root.certificate(), required });
        speaks(server, Versions::Tls13)
    };
    let ours = |holder: Option<Holder>| {
        let mut options = options(&[&fixture.root.certificate()]);
        options.identity = holder.as_ref().map(identity_of);
        let config = options.validate().unwrap();
        assert!(config.is_readable());
        config
    };
    let known = || Some(fixture.root.issue(&CertificateRequest::client("ann")));
    let unknown = || Some(stranger.issue(&CertificateRequest::client("ann")));
    assert_eq!(check(&ours(None), HOST, Wire::to(&asks(false))), Ok(()));
    assert_eq!(check(&ours(known()), HOST, Wire::to(&asks(false))), Ok(()));
    assert_eq!(check(&ours(known()), HOST, Wire::to(&asks(true))), Ok(()));
    assert_eq!(check(&ours(None), HOST, Wire::to(&asks(true))), refused);
    assert_eq!(check(&ours(unknown()), HOST, Wire::to(&asks(true))), refused);
}

#[test]
fn debug_hides_the_identity_and_an_invalid_one_is_an_error() {
    let holder = Holder::root("root");
    let mut options = options(&[&holder.certificate()]);
    let identity = identity_of(&holder);
    options.identity = Some(identity);
    assert!(options.validate().unwrap().is_readable());
    assert_eq!(alloc::format!("{:?}", options.identity), "Some(TlsIdentity(..))");
    options.identity = Some(TlsIdentity { key: &identity.key[1..], ..identity });
    assert!(!options.validate().unwrap().is_readable());
    options.identity = None;
    options.authorities = &[&[0x30, 3, 2, 1, 1]];
    assert!(!options.validate().unwrap().is_readable());
    options.authorities = &[];
    assert_eq!(options.validate().unwrap_err().option(), "authorities");
    options.authorities = &[&[0x30u8] as &[u8]; 9];
    assert_eq!(options.validate().unwrap_err().value(), 9);
}

#[test]
fn constant_random_bytes_are_refused() {
    let fixture = Fixture::new();
    let wire = Wire::to(&speaks(fixture.server(), Versions::Tls13));
    let far = wire.far();
    let mut memory = Memory::new();
    let outcome = run(memory.session(wire).open(HOST, &fixture.config(), |bytes| bytes.fill(0)));
    assert_eq!(outcome, Err(Cause::Resources));
    assert_eq!(far.borrow().given, 0);
}

/// rustls ignores the extension, but must accept it.
#[test]
fn smaller_records_can_be_requested() {
    let fixture = Fixture::new();
    let fragments = [MaxFragment::Bytes1024, MaxFragment::Bytes2048, MaxFragment::Bytes4096];
    for fragment in fragments {
        let mut options = options(&[&fixture.root.certificate()]);
        options.max_fragment = Some(fragment);
        let config = options.validate().unwrap();
        assert_eq!(check(&config, HOST, Wire::to(&speaks(fixture.server(), Versions::Tls13))), Ok(()));
    }
    assert_eq!(fragments.map(MaxFragment::bytes), [1024, 2048, 4096]);
}
