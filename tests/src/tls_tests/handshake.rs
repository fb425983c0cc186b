//! Verification of servers by a client, and its errors.

use poolhouse_client::tls::{Authorities, TlsConfig, TlsOptions, TlsWarning};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_wire::{Labels, Phase};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::support::{Far, Fixture, HOST, connect, lenient, receive, run, send};
use crate::tls::{CertificateRequest, ClientCheck, Holder, Identity, ServerTls, Validity, Versions};

const VERSIONS: [Versions; 3] = [Versions::All, Versions::Tls12, Versions::Tls13];

/// Connects, and checks that the server echoes a message.
fn check(config: &TlsConfig, host: &str, server: &ServerTls) -> Result<&'static str, Cause> {
    let wire = Far::server(server);
    let mut stream = connect(config, host, &wire).map_err(|error| error.cause())?;
    run(send(&mut stream, b"hello")).unwrap();
    assert_eq!(run(receive(&mut stream, 5)).unwrap(), b"hello");
    Ok(stream.protocol().unwrap())
}

#[test]
fn valid_certificate_is_accepted_in_either_version() {
    let fixture = Fixture::new();
    let expected = ["TLSv1_3", "TLSv1_2", "TLSv1_3"];
    for (versions, expected) in VERSIONS.into_iter().zip(expected) {
        let mut server = fixture.server();
        server.versions = versions;
        assert_eq!(check(&fixture.config(), HOST, &server), Ok(expected));
    }
}

/// Exclusively: a fallback does not add to them.
#[test]
fn authority_in_memory_is_trusted_and_no_other() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let config = |authority: &Fixture| {
        let authorities = |fixture: &Fixture| Authorities::from_pem(fixture.root.certificate()).unwrap();
        let options = TlsOptions::default().authorities(authorities(authority));
        TlsConfig::build(&options.fallback_authorities(authorities(&fixture))).unwrap()
    };
    assert!(check(&config(&fixture), HOST, &fixture.server()).is_ok());
    let unknown = Err(Cause::Certificate(CertificateFault::UnknownIssuer));
    assert_eq!(check(&config(&other), HOST, &fixture.server()), unknown);
}

#[test]
fn host_may_be_a_name_or_an_address_and_only_names_are_sent() {
    let fixture = Fixture::new();
    for host in [HOST, "10.1.2.3", "::1"] {
        let wire = Far::server(&fixture.server());
        connect(&fixture.config(), host, &wire).unwrap_or_else(|error| panic!("{host}: {error}"));
        let mut far = wire.0.borrow_mut();
        assert_eq!(far.side().connection().server_name(), (host == HOST).then_some(HOST));
    }
    for host in ["10.1.2.4", "::2", "other.example.com", "example.com"] {
        assert_eq!(
            check(&fixture.config(), host, &fixture.server()),
            Err(Cause::Certificate(CertificateFault::WrongName)),
            "{host}"
        );
    }
}

/// A zone selects the route to an address; the certificate does not contain it.
#[test]
fn zone_of_an_address_is_not_part_of_its_name() {
    let fixture = Fixture::new();
    let server = || ServerTls::new(fixture.root.issue(&CertificateRequest::server(&["fe80::1"])).identity());
    for host in ["fe80::1%eth0", "fe80::1%3", "fe80::1"] {
        assert!(check(&fixture.config(), host, &server()).is_ok(), "{host}");
    }
    let wrong = Err(Cause::Certificate(CertificateFault::WrongName));
    assert_eq!(check(&fixture.config(), "fe80::2%eth0", &server()), wrong);
    assert_eq!(check(&fixture.config(), "db%eth0", &server()), wrong);
    let (mut any_name, mut any_certificate) = (fixture.options(), fixture.options());
    any_name.allow_invalid_hostnames = true;
    any_certificate.allow_invalid_certificates = true;
    for options in [any_name, any_certificate] {
        let config = TlsConfig::build(&options).unwrap();
        assert!(check(&config, "fe80::2%eth0", &server()).is_ok());
    }
}

/// Each kind of untrusted certificate, and the fault to be reported.
fn bad_servers(fixture: &Fixture) -> Vec<(&'static str, ServerTls, CertificateFault)> {
    let good = CertificateRequest::server(&[HOST]);
    let issue = |wanted: &CertificateRequest| ServerTls::new(fixture.root.issue(wanted).identity());
    let leaf = fixture.root.issue(&good);
    let lapsed = fixture.root.issue(&CertificateRequest::authority("lapsed").valid(Validity::Over));
    vec![
        ("expired", issue(&good.clone().valid(Validity::Over)), CertificateFault::Expired),
        ("not yet valid", issue(&good.clone().valid(Validity::Ahead)), CertificateFault::NotYetValid),
        ("wrong name", issue(&CertificateRequest::server(&["elsewhere.example.com"])), CertificateFault::WrongName),
        ("no name", issue(&CertificateRequest::server(&[])), CertificateFault::WrongName),
        (
            "of another authority",
            ServerTls::new(Holder::root("stranger").issue(&good).identity()),
            CertificateFault::UnknownIssuer,
        ),
        (
            "of another authority of the same name",
            ServerTls::new(Holder::root("root").issue(&good).identity()),
            CertificateFault::UnknownIssuer,
        ),
        ("self-signed", ServerTls::new(Holder::self_signed(&good).identity()), CertificateFault::UnknownIssuer),
        (
            "issued by a holder that is not an authority",
            ServerTls::new(leaf.issue(&good).identity()),
            CertificateFault::Invalid,
        ),
        ("issued by an expired authority", ServerTls::new(lapsed.issue(&good).identity()), CertificateFault::Expired),
        ("of version 1", ServerTls::new(fixture.root.issue_version_1(&good)), CertificateFault::Version1),
        ("an authority itself", issue(&CertificateRequest { is_authority: true, ..good }), CertificateFault::Authority),
    ]
}

/// CMAP-97.
#[test]
#[doc(alias = "CMAP-97")]
fn bad_certificate_is_rejected_for_its_fault_and_carries_no_label() {
    let fixture = Fixture::new();
    for (name, mut server, fault) in bad_servers(&fixture) {
        for versions in VERSIONS {
            server.versions = versions;
            let wire = Far::server(&server);
            let error = connect(&fixture.config(), HOST, &wire).err().unwrap_or_else(|| panic!("{name}"));
            assert_eq!(error.cause(), Cause::Certificate(fault), "{name} {error}");
            assert_eq!(Labels::for_establishment(Phase::Tls, error.cause()), Labels::NONE);
            let failure = wire.0.borrow().failure.clone();
            assert!(failure.is_some_and(|failure| failure.contains("alert")), "{name}: the server receives no alert");
        }
    }
}

#[test]
fn intermediate_certificates_are_followed() {
    let fixture = Fixture::new();
    let middle = fixture.root.issue(&CertificateRequest::authority("middle"));
    let server = ServerTls::new(middle.issue(&CertificateRequest::server(&[HOST])).identity());
    assert_eq!(check(&fixture.config(), HOST, &server), Ok("TLSv1_3"));
}

#[test]
fn self_signed_certificate_is_accepted_where_it_is_named_as_the_authority() {
    let fixture = Fixture::new();
    let own = Holder::self_signed(&CertificateRequest::server(&[HOST]));
    let mut options = fixture.options();
    options.ca_file = Some(fixture.folder.write("own.pem", own.certificate()));
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(check(&config, HOST, &ServerTls::new(own.identity())), Ok("TLSv1_3"));
    assert_eq!(check(&config, HOST, &fixture.server()), Err(Cause::Certificate(CertificateFault::UnknownIssuer)));
}

/// As `openssl req -x509` makes it.
fn own_authority(names: &[&str], validity: Validity) -> Holder {
    let wanted = CertificateRequest { is_authority: true, ..CertificateRequest::server(names) };
    Holder::self_signed(&wanted.valid(validity))
}

#[test]
fn certificate_of_an_authority_is_accepted_from_a_server_where_it_is_trusted_itself() {
    let fixture = Fixture::new();
    let own = own_authority(&[HOST, "10.1.2.3"], Validity::Now);
    let mut by_file = fixture.options();
    by_file.ca_file =
        Some(fixture.folder.write("own.pem", format!("{}{}", fixture.root.certificate(), own.certificate())));
    let in_memory = TlsOptions::default().authorities(Authorities::from_pem(own.certificate()).unwrap());
    for options in [by_file, in_memory] {
        let config = TlsConfig::build(&options).unwrap();
        assert_eq!(config.warnings(), []);
        for (versions, version) in [(Versions::Tls12, "TLSv1_2"), (Versions::Tls13, "TLSv1_3")] {
            let mut server = ServerTls::new(own.identity());
            server.versions = versions;
            assert_eq!(check(&config, HOST, &server), Ok(version));
            assert_eq!(check(&config, "10.1.2.3", &server), Ok(version));
            let wrong_name = Err(Cause::Certificate(CertificateFault::WrongName));
            assert_eq!(check(&config, "other.example.com", &server), wrong_name);
            assert_eq!(check(&config, "10.1.2.4", &server), wrong_name);
            // It still issues certificates.
            server.identity = own.issue(&CertificateRequest::server(&[HOST])).identity();
            assert_eq!(check(&config, HOST, &server), Ok(version));
        }
    }
}

#[test]
fn trusted_certificate_of_an_authority_must_be_valid_now_and_that_of_the_server_byte_by_byte() {
    let fixture = Fixture::new();
    let config = |named: &Holder, any_name| {
        let mut options = fixture.options();
        options.ca_file = Some(fixture.folder.write("own.pem", named.certificate()));
        options.allow_invalid_hostnames = any_name;
        TlsConfig::build(&options).unwrap()
    };
    let own = |validity| own_authority(&[HOST], validity);
    let (now, over, ahead) = (own(Validity::Now), own(Validity::Over), own(Validity::Ahead));
    // The same subject, and the same subject and key.
    let (other, again) = {
        let more = CertificateRequest { is_authority: true, ..CertificateRequest::server(&[HOST, "10.1.2.3"]) };
        (own(Validity::Now), Holder::self_signed_with_key(&more, &now.identity().key))
    };
    for (named, shown, fault) in [
        (&over, &over, CertificateFault::Expired),
        (&ahead, &ahead, CertificateFault::NotYetValid),
        (&now, &other, CertificateFault::Authority),
        (&now, &again, CertificateFault::Authority),
    ] {
        for any_name in [false, true] {
            let refused = Err(Cause::Certificate(fault));
            assert_eq!(check(&config(named, any_name), HOST, &ServerTls::new(shown.identity())), refused, "{shown:?}");
        }
    }
    // Without its key, nobody can present it.
    let thief = Identity { certificates: now.certificate(), key: other.identity().key };
    for versions in [Versions::Tls12, Versions::Tls13] {
        let wire = Far::of(&lenient(&thief, versions));
        let unsigned = connect(&config(&now, false), HOST, &wire).unwrap_err().cause();
        assert_eq!(unsigned, Cause::Certificate(CertificateFault::UnknownIssuer));
    }
    // The check of names can be relaxed.
    let nameless = own_authority(&[], Validity::Now);
    let server = ServerTls::new(nameless.identity());
    let wrong_name = Err(Cause::Certificate(CertificateFault::WrongName));
    assert_eq!(check(&config(&nameless, false), HOST, &server), wrong_name);
    assert_eq!(check(&config(&nameless, true), HOST, &server), Ok("TLSv1_3"));
}

#[test]
fn refusals_of_authorities_and_of_version_1_say_what_to_do() {
    let fixture = Fixture::new();
    let text =
        |identity| connect(&fixture.config(), HOST, &Far::server(&ServerTls::new(identity))).unwrap_err().to_string();
    let of_authority = text(own_authority(&[HOST], Validity::Now).identity());
    assert!(
        of_authority.contains("add this certificate itself to tlsCAFile, or issue one without CA:TRUE"),
        "{of_authority}"
    );
    let of_version_1 = text(fixture.root.issue_version_1(&CertificateRequest::server(&[HOST])));
    assert!(of_version_1.contains("version 1, without extensions, as openssl x509 -req makes it"), "{of_version_1}");
    assert!(of_version_1.contains("issue one with a subjectAltName"), "{of_version_1}");
    assert!(!of_version_1.contains("\n") && !of_version_1.contains("  "), "{of_version_1}");
}

#[test]
fn certificate_of_version_1_above_that_of_the_server_is_an_unknown_issuer() {
    let fixture = Fixture::new();
    let request = CertificateRequest::server(&[HOST]);
    let mut stranger = Holder::root("stranger").issue(&request).identity();
    stranger.certificates += &fixture.root.issue_version_1(&request).certificates;
    let cause = connect(&fixture.config(), HOST, &Far::server(&ServerTls::new(stranger))).unwrap_err().cause();
    assert_eq!(cause, Cause::Certificate(CertificateFault::UnknownIssuer));
}

#[test]
fn relaxed_names_accept_only_wrong_names() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.allow_invalid_hostnames = true;
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(config.warnings(), [TlsWarning::InvalidHostnames]);
    for (name, mut server, fault) in bad_servers(&fixture) {
        for (versions, version) in [(Versions::All, "TLSv1_3"), (Versions::Tls12, "TLSv1_2")] {
            server.versions = versions;
            let expected =
                if fault == CertificateFault::WrongName { Ok(version) } else { Err(Cause::Certificate(fault)) };
            assert_eq!(check(&config, HOST, &server), expected, "{name}");
        }
    }
    assert_eq!(check(&config, "10.9.9.9", &fixture.server()), Ok("TLSv1_3"));
}

#[test]
fn relaxed_certificates_accept_every_certificate() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.allow_invalid_certificates = true;
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(config.warnings(), [TlsWarning::InvalidCertificates]);
    for (name, mut server, _) in bad_servers(&fixture) {
        for versions in VERSIONS {
            server.versions = versions;
            assert!(check(&config, HOST, &server).is_ok(), "{name}");
        }
    }
}

#[test]
fn without_relaxation_there_are_no_warnings() {
    assert_eq!(Fixture::new().config().warnings(), []);
}

fn demanding(fixture: &Fixture, required: bool, versions: Versions) -> ServerTls {
    let mut server = fixture.server();
    server.versions = versions;
    server.clients = Some(ClientCheck { authority: fixture.root.certificate(), required });
    server
}

#[test]
fn client_presents_its_certificate_on_request() {
    let fixture = Fixture::new();
    let client = fixture.root.issue(&CertificateRequest::client("ann"));
    let mut options = fixture.options();
    options.certificate_key_file = Some(fixture.folder.write("client.pem", client.identity().pem()));
    let config = TlsConfig::build(&options).unwrap();
    assert!(config.has_certificate() && !fixture.config().has_certificate());
    for versions in VERSIONS {
        let wire = Far::server(&demanding(&fixture, true, versions));
        connect(&config, HOST, &wire).unwrap();
        let mut far = wire.0.borrow_mut();
        assert_eq!(far.side().connection().peer_certificates().map(<[_]>::len), Some(1));
        // The client sends no certificate unless the server requests one.
        drop(far);
        assert!(check(&config, HOST, &fixture.server()).is_ok());
        assert!(check(&fixture.config(), HOST, &demanding(&fixture, false, versions)).is_ok());
    }
}

/// The server judges it, and real servers accept it.
#[test]
fn client_presents_a_certificate_of_version_1_too() {
    let fixture = Fixture::new();
    let identity = fixture.root.issue_version_1(&CertificateRequest::client("ann"));
    let mut options = fixture.options();
    options.certificate_key_file = Some(fixture.folder.write("client.pem", identity.pem()));
    let config = TlsConfig::build(&options).unwrap();
    assert!(config.has_certificate());
    for versions in VERSIONS {
        let wire = Far::of(&lenient(&fixture.server().identity, versions));
        connect(&config, HOST, &wire).unwrap();
        let mut far = wire.0.borrow_mut();
        let sent = far.side().connection().peer_certificates().unwrap();
        assert_eq!(sent, [CertificateDer::from_pem_slice(identity.certificates.as_bytes()).unwrap()]);
    }
}

/// In TLS 1.3 the server's verdict arrives after the client has completed the handshake.
#[test]
#[doc(alias = "CMAP-97")]
fn rejected_client_reports_that_its_certificate_is_the_cause() {
    let fixture = Fixture::new();
    let stranger = Holder::root("stranger").issue(&CertificateRequest::client("ann"));
    let mut options = fixture.options();
    options.certificate_key_file = Some(fixture.folder.write("stranger.pem", stranger.identity().pem()));
    for config in [fixture.config(), TlsConfig::build(&options).unwrap()] {
        let refused = Cause::Certificate(CertificateFault::RefusedByPeer);
        let wire = Far::server(&demanding(&fixture, true, Versions::Tls12));
        assert_eq!(connect(&config, HOST, &wire).unwrap_err().cause(), refused);
        let wire = Far::server(&demanding(&fixture, true, Versions::Tls13));
        let mut stream = connect(&config, HOST, &wire).unwrap();
        let error = run(receive(&mut stream, 1)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        assert_eq!(poolhouse_client::tls::cause_of(&error), refused);
        // Also if the client writes first, and the write fails because the server has closed.
        for patient in [false, true] {
            let wire = Far::server(&demanding(&fixture, true, Versions::Tls13));
            let mut stream = connect(&config, HOST, &wire).unwrap();
            wire.0.borrow_mut().broken = true;
            wire.0.borrow_mut().patient = patient;
            let error = run(send(&mut stream, b"hello")).unwrap_err();
            assert_eq!(poolhouse_client::tls::cause_of(&error), refused, "{error}");
        }
    }
}

#[test]
fn later_handshakes_resume_the_session() {
    let fixture = Fixture::new();
    let config = fixture.config();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut server = fixture.server();
        server.versions = versions;
        let shared = server.config().unwrap();
        for resumed in [false, true] {
            let wire = Far::of(&shared);
            let mut stream = connect(&config, HOST, &wire).unwrap();
            run(send(&mut stream, b"x")).unwrap();
            run(receive(&mut stream, 1)).unwrap();
            assert_eq!(stream.is_resumed(), resumed, "{versions:?}");
        }
        // Otherwise the next version would try to resume a session of this version, and fail.
    }
}
