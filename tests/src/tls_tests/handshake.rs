//! Verification of servers by a client, and its errors.

use poolhouse_client::tls::{Authorities, TlsConfig, TlsOptions, TlsWarning};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_wire::{Labels, Phase};

use super::support::{Far, HOST, World, connect, receive, run, send};
use crate::tls::{ClientCheck, Holder, ServerTls, Validity, Versions, Wanted};

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
    let world = World::new();
    let expected = ["TLSv1_3", "TLSv1_2", "TLSv1_3"];
    for (versions, expected) in VERSIONS.into_iter().zip(expected) {
        let mut server = world.server();
        server.versions = versions;
        assert_eq!(check(&world.config(), HOST, &server), Ok(expected));
    }
}

/// Exclusively: a fallback does not add to them.
#[test]
fn authority_in_memory_is_trusted_and_no_other() {
    let (world, other) = (World::new(), World::new());
    let config = |authority: &World| {
        let authorities = |world: &World| Authorities::from_pem(world.root.certificate()).unwrap();
        let options = TlsOptions::default().authorities(authorities(authority));
        TlsConfig::build(&options.fallback_authorities(authorities(&world))).unwrap()
    };
    assert!(check(&config(&world), HOST, &world.server()).is_ok());
    let unknown = Err(Cause::Certificate(CertificateFault::UnknownIssuer));
    assert_eq!(check(&config(&other), HOST, &world.server()), unknown);
}

#[test]
fn host_may_be_a_name_or_an_address_and_only_names_are_sent() {
    let world = World::new();
    for host in [HOST, "10.1.2.3", "::1"] {
        let wire = Far::server(&world.server());
        connect(&world.config(), host, &wire).unwrap_or_else(|error| panic!("{host}: {error}"));
        let mut far = wire.0.borrow_mut();
        assert_eq!(far.side().connection().server_name(), (host == HOST).then_some(HOST));
    }
    for host in ["10.1.2.4", "::2", "other.example.com", "example.com"] {
        assert_eq!(
            check(&world.config(), host, &world.server()),
            Err(Cause::Certificate(CertificateFault::WrongName)),
            "{host}"
        );
    }
}

/// A zone selects the route to an address; the certificate does not contain it.
#[test]
fn zone_of_an_address_is_not_part_of_its_name() {
    let world = World::new();
    let server = || ServerTls::new(world.root.issue(&Wanted::server(&["fe80::1"])).identity());
    for host in ["fe80::1%eth0", "fe80::1%3", "fe80::1"] {
        assert!(check(&world.config(), host, &server()).is_ok(), "{host}");
    }
    let wrong = Err(Cause::Certificate(CertificateFault::WrongName));
    assert_eq!(check(&world.config(), "fe80::2%eth0", &server()), wrong);
    assert_eq!(check(&world.config(), "db%eth0", &server()), wrong);
    let (mut any_name, mut any_certificate) = (world.options(), world.options());
    any_name.allow_invalid_hostnames = true;
    any_certificate.allow_invalid_certificates = true;
    for options in [any_name, any_certificate] {
        let config = TlsConfig::build(&options).unwrap();
        assert!(check(&config, "fe80::2%eth0", &server()).is_ok());
    }
}

/// Each kind of untrusted certificate, and the fault to be reported.
fn bad_servers(world: &World) -> Vec<(&'static str, ServerTls, CertificateFault)> {
    let good = Wanted::server(&[HOST]);
    let issue = |wanted: &Wanted| ServerTls::new(world.root.issue(wanted).identity());
    let leaf = world.root.issue(&good);
    let lapsed = world.root.issue(&Wanted::authority("lapsed").valid(Validity::Over));
    vec![
        ("expired", issue(&good.clone().valid(Validity::Over)), CertificateFault::Expired),
        ("not yet valid", issue(&good.clone().valid(Validity::Ahead)), CertificateFault::NotYetValid),
        ("wrong name", issue(&Wanted::server(&["elsewhere.example.com"])), CertificateFault::WrongName),
        ("no name", issue(&Wanted::server(&[])), CertificateFault::WrongName),
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
        ("an authority itself", issue(&Wanted { is_authority: true, ..good }), CertificateFault::Invalid),
    ]
}

/// CMAP-97.
#[test]
fn bad_certificate_is_rejected_for_its_fault_and_carries_no_label() {
    let world = World::new();
    for (name, mut server, fault) in bad_servers(&world) {
        for versions in VERSIONS {
            server.versions = versions;
            let wire = Far::server(&server);
            let error = connect(&world.config(), HOST, &wire).err().unwrap_or_else(|| panic!("{name}"));
            assert_eq!(error.cause(), Cause::Certificate(fault), "{name} {error}");
            assert_eq!(Labels::for_establishment(Phase::Tls, error.cause()), Labels::NONE);
            let failure = wire.0.borrow().failure.clone();
            assert!(failure.is_some_and(|failure| failure.contains("alert")), "{name}: the server receives no alert");
        }
    }
}

#[test]
fn intermediate_certificates_are_followed() {
    let world = World::new();
    let middle = world.root.issue(&Wanted::authority("middle"));
    let server = ServerTls::new(middle.issue(&Wanted::server(&[HOST])).identity());
    assert_eq!(check(&world.config(), HOST, &server), Ok("TLSv1_3"));
}

#[test]
fn self_signed_certificate_is_accepted_where_it_is_named_as_the_authority() {
    let world = World::new();
    let own = Holder::self_signed(&Wanted::server(&[HOST]));
    let mut options = world.options();
    options.ca_file = Some(world.folder.write("own.pem", own.certificate()));
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(check(&config, HOST, &ServerTls::new(own.identity())), Ok("TLSv1_3"));
    assert_eq!(check(&config, HOST, &world.server()), Err(Cause::Certificate(CertificateFault::UnknownIssuer)));
}

#[test]
fn relaxed_names_accept_only_wrong_names() {
    let world = World::new();
    let mut options = world.options();
    options.allow_invalid_hostnames = true;
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(config.warnings(), [TlsWarning::InvalidHostnames]);
    for (name, mut server, fault) in bad_servers(&world) {
        for (versions, version) in [(Versions::All, "TLSv1_3"), (Versions::Tls12, "TLSv1_2")] {
            server.versions = versions;
            let expected =
                if fault == CertificateFault::WrongName { Ok(version) } else { Err(Cause::Certificate(fault)) };
            assert_eq!(check(&config, HOST, &server), expected, "{name}");
        }
    }
    assert_eq!(check(&config, "10.9.9.9", &world.server()), Ok("TLSv1_3"));
}

#[test]
fn relaxed_certificates_accept_every_certificate() {
    let world = World::new();
    let mut options = world.options();
    options.allow_invalid_certificates = true;
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(config.warnings(), [TlsWarning::InvalidCertificates]);
    for (name, mut server, _) in bad_servers(&world) {
        for versions in VERSIONS {
            server.versions = versions;
            assert!(check(&config, HOST, &server).is_ok(), "{name}");
        }
    }
}

#[test]
fn without_relaxation_there_are_no_warnings() {
    assert_eq!(World::new().config().warnings(), []);
}

fn demanding(world: &World, required: bool, versions: Versions) -> ServerTls {
    let mut server = world.server();
    server.versions = versions;
    server.clients = Some(ClientCheck { authority: world.root.certificate(), required });
    server
}

#[test]
fn client_presents_its_certificate_on_request() {
    let world = World::new();
    let client = world.root.issue(&Wanted::client("ann"));
    let mut options = world.options();
    options.certificate_key_file = Some(world.folder.write("client.pem", client.identity().pem()));
    let config = TlsConfig::build(&options).unwrap();
    assert!(config.has_certificate() && !world.config().has_certificate());
    for versions in VERSIONS {
        let wire = Far::server(&demanding(&world, true, versions));
        connect(&config, HOST, &wire).unwrap();
        let mut far = wire.0.borrow_mut();
        assert_eq!(far.side().connection().peer_certificates().map(<[_]>::len), Some(1));
        // The client sends no certificate unless the server requests one.
        drop(far);
        assert!(check(&config, HOST, &world.server()).is_ok());
        assert!(check(&world.config(), HOST, &demanding(&world, false, versions)).is_ok());
    }
}

/// CMAP-97: in TLS 1.3 the server's verdict arrives after the client has completed the handshake.
#[test]
fn rejected_client_reports_that_its_certificate_is_the_cause() {
    let world = World::new();
    let stranger = Holder::root("stranger").issue(&Wanted::client("ann"));
    let mut options = world.options();
    options.certificate_key_file = Some(world.folder.write("stranger.pem", stranger.identity().pem()));
    for config in [world.config(), TlsConfig::build(&options).unwrap()] {
        let refused = Cause::Certificate(CertificateFault::RefusedByPeer);
        let wire = Far::server(&demanding(&world, true, Versions::Tls12));
        assert_eq!(connect(&config, HOST, &wire).unwrap_err().cause(), refused);
        let wire = Far::server(&demanding(&world, true, Versions::Tls13));
        let mut stream = connect(&config, HOST, &wire).unwrap();
        let error = run(receive(&mut stream, 1)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        assert_eq!(poolhouse_client::tls::cause_of(&error), refused);
        // Also if the client writes first, and the write fails because the server has closed.
        for patient in [false, true] {
            let wire = Far::server(&demanding(&world, true, Versions::Tls13));
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
    let world = World::new();
    let config = world.config();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut server = world.server();
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
