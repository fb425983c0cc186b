//! Which certificates a client accepts, and that a hosted client accepts the same.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};

use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, Holder, Identity, ServerTls, Validity, Versions};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SignatureAlgorithm, SigningKey,
};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use super::support::{Fixture, HOST, Wire, check, config, der, hosted, shows, shows_identity, speaks};

/// A case of the table. Both clients must return the same result.
struct Case {
    name: &'static str,
    authorities: Vec<String>,
    server: Arc<ServerConfig>,
    host: &'static str,
    expected: Result<(), CertificateFault>,
}

fn case(
    name: &'static str,
    fixture: &Fixture,
    server: Arc<ServerConfig>,
    host: &'static str,
    expected: Result<(), CertificateFault>,
) -> Case {
    Case { name, authorities: vec![fixture.root.certificate()], server, host, expected }
}

/// A certificate with arbitrary parameters.
struct Odd {
    params: CertificateParams,
    algorithm: &'static SignatureAlgorithm,
}

impl Odd {
    fn server() -> Self {
        let mut params = CertificateParams::new(vec![HOST.into()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "odd");
        Self { params, algorithm: &rcgen::PKCS_ECDSA_P256_SHA256 }
    }

    fn authority(name: &str) -> Self {
        let mut odd = Self::server();
        odd.params.subject_alt_names.clear();
        odd.params.distinguished_name = rcgen::DistinguishedName::new();
        odd.params.distinguished_name.push(DnType::CommonName, name);
        odd.params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        odd.params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        odd
    }

    fn with(mut self, change: impl FnOnce(&mut CertificateParams)) -> Self {
        change(&mut self.params);
        self
    }

    fn on(self, algorithm: &'static SignatureAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    fn key(&self) -> KeyPair {
        KeyPair::generate_for(self.algorithm).unwrap()
    }

    fn root(self) -> CertifiedIssuer<'static, KeyPair> {
        let key = self.key();
        CertifiedIssuer::self_signed(self.params, key).unwrap()
    }

    fn issued_by<S: SigningKey>(self, issuer: &CertifiedIssuer<'static, S>) -> CertifiedIssuer<'static, KeyPair> {
        let key = self.key();
        CertifiedIssuer::signed_by(self.params, key, issuer).unwrap()
    }
}

fn shown(leaf: &CertifiedIssuer<'static, KeyPair>, above: &[&CertifiedIssuer<'static, KeyPair>]) -> Arc<ServerConfig> {
    let chain = core::iter::once(&leaf).chain(above).map(|holder| der(&holder.pem())).collect();
    shows(chain, &leaf.key().serialize_pem())
}

fn common_cases() -> Vec<Case> {
    use CertificateFault::{Authority, Expired, Invalid, NotYetValid, UnknownIssuer, Version1, WrongName};
    let fixture = Fixture::new();
    let good = CertificateRequest::server(&[HOST, "10.1.2.3", "*.wild.example.com"]);
    let issue = |wanted: &CertificateRequest| shows_identity(&fixture.root.issue(wanted).identity());
    let leaf = fixture.root.issue(&good);
    let middle = fixture.root.issue(&CertificateRequest::authority("middle"));
    let lapsed = fixture.root.issue(&CertificateRequest::authority("lapsed").valid(Validity::Over));
    let stranger = Holder::root("stranger");
    let other = |identity: Identity| shows_identity(&identity);
    let own = |name, server, host, expected| case(name, &fixture, server, host, expected);
    let mut cases = vec![
        own("good", issue(&good), HOST, Ok(())),
        own("good in capitals", issue(&good), "DB.Example.COM", Ok(())),
        own("good with a dot at its end", issue(&good), "db.example.com.", Ok(())),
        own("good by its address", issue(&good), "10.1.2.3", Ok(())),
        own("good by a wildcard", issue(&good), "a.wild.example.com", Ok(())),
        own("two levels below a wildcard", issue(&good), "a.b.wild.example.com", Err(WrongName)),
        own("the wildcard's own level", issue(&good), "wild.example.com", Err(WrongName)),
        own("with one between", other(middle.issue(&good).identity()), HOST, Ok(())),
        own("expired", issue(&good.clone().valid(Validity::Over)), HOST, Err(Expired)),
        own("not yet valid", issue(&good.clone().valid(Validity::Ahead)), HOST, Err(NotYetValid)),
        own("wrong name", issue(&CertificateRequest::server(&["elsewhere.example.com"])), HOST, Err(WrongName)),
        own("wrong address", issue(&good), "10.1.2.4", Err(WrongName)),
        own(
            "an address that is there as a name only",
            issue(&CertificateRequest::server(&[HOST])),
            "10.1.2.3",
            Err(WrongName),
        ),
        own(
            "no name but a common one",
            issue(&CertificateRequest { common_name: HOST.into(), ..CertificateRequest::server(&[]) }),
            HOST,
            Err(WrongName),
        ),
        own("a host that no certificate can have", issue(&good), "a b", Err(WrongName)),
        own("foreign authority", other(stranger.issue(&good).identity()), HOST, Err(UnknownIssuer)),
        own(
            "foreign authority of the same name",
            other(Holder::root("root").issue(&good).identity()),
            HOST,
            Err(UnknownIssuer),
        ),
        own("self-signed", other(Holder::self_signed(&good).identity()), HOST, Err(UnknownIssuer)),
        own("issued by a leaf", other(leaf.issue(&good).identity()), HOST, Err(Invalid)),
        own("issued by an authority whose time is over", other(lapsed.issue(&good).identity()), HOST, Err(Expired)),
        own(
            "an authority itself",
            issue(&CertificateRequest { is_authority: true, ..good.clone() }),
            HOST,
            Err(Authority),
        ),
        own("of version 1", other(fixture.root.issue_version_1(&good)), HOST, Err(Version1)),
    ];
    let chainless = middle.issue(&good).identity();
    let chainless = shows(vec![der(&chainless.certificates)], &chainless.key);
    cases.push(own("what is between is not shown", chainless, HOST, Err(UnknownIssuer)));
    cases.push(own("no certificate", shows(vec![], &leaf.identity().key), HOST, Err(Invalid)));
    let garbage = CertificateDer::from(vec![0x30, 3, 2, 1, 1]);
    cases.push(own("no certificate but bytes", shows(vec![garbage], &leaf.identity().key), HOST, Err(Invalid)));
    let mut trailing = der(&leaf.certificate()).as_ref().to_vec();
    trailing.push(0);
    cases.push(own("bytes after it", shows(vec![trailing.into()], &leaf.identity().key), HOST, Err(Invalid)));
    let mut altered = der(&leaf.certificate()).as_ref().to_vec();
    let last = altered.len() - 1;
    altered[last] ^= 1;
    cases.push(own("altered", shows(vec![altered.into()], &leaf.identity().key), HOST, Err(UnknownIssuer)));
    let thief = shows(vec![der(&leaf.certificate())], &stranger.identity().key);
    cases.push(own("another's certificate without its key", thief, HOST, Err(UnknownIssuer)));
    let two = case("one of two authorities", &fixture, issue(&good), HOST, Ok(()));
    cases.push(Case { authorities: vec![stranger.certificate(), fixture.root.certificate()], ..two });
    let own_root = Holder::self_signed(&good);
    let trusted = case("self-signed and trusted", &fixture, other(own_root.identity()), HOST, Ok(()));
    cases.push(Case { authorities: vec![own_root.certificate()], ..trusted });
    let root =
        |validity| Holder::self_signed(&CertificateRequest { is_authority: true, ..good.clone() }.valid(validity));
    let (now, over) = (root(Validity::Now), root(Validity::Over));
    for (name, shown, named, host, expected) in [
        ("a trusted authority itself", &now, &now, HOST, Ok(())),
        ("a trusted authority under another name", &now, &now, "other.example.com", Err(WrongName)),
        ("a trusted authority whose time is over", &over, &over, HOST, Err(Expired)),
        ("another authority of a trusted one's name", &root(Validity::Now), &now, HOST, Err(Authority)),
    ] {
        let shown = case(name, &fixture, other(shown.identity()), host, expected);
        cases.push(Case { authorities: vec![named.certificate()], ..shown });
    }
    cases
}

fn odd_cases() -> Vec<Case> {
    use CertificateFault::{Invalid, UnknownIssuer};
    let root = Odd::authority("odd root").root();
    let of = |name, server, expected| Case { name, authorities: vec![root.pem()], server, host: HOST, expected };
    let issue = |odd: Odd| shown(&odd.issued_by(&root), &[]);
    let usage = |usage| Odd::server().with(|params| params.extended_key_usages = vec![usage]);
    let critical = |params: &mut CertificateParams| {
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    };
    let narrow = Odd::authority("narrow").with(|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let narrow = narrow.issued_by(&root);
    let below = Odd::authority("below").issued_by(&narrow);
    let mute = Odd::authority("mute").with(|params| params.key_usages = vec![KeyUsagePurpose::CrlSign]);
    let mute = mute.issued_by(&root);
    let limited = Odd::authority("limited").with(|params| {
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("elsewhere.example.com".into())],
            excluded_subtrees: vec![],
        });
    });
    let limited = limited.issued_by(&root);
    let a = Odd::authority("a").issued_by(&root);
    let b = Odd::authority("b").issued_by(&a);
    let c = Odd::authority("c").issued_by(&b);
    let d = Odd::authority("d").issued_by(&c);
    let deep = Odd::server().issued_by(&c);
    let deeper = Odd::server().issued_by(&d);
    let unrelated = Odd::authority("unrelated").root();
    vec![
        of("meant for servers", issue(usage(ExtendedKeyUsagePurpose::ServerAuth)), Ok(())),
        of("meant for anything", issue(usage(ExtendedKeyUsagePurpose::Any)), Err(Invalid)),
        of("meant for clients", issue(usage(ExtendedKeyUsagePurpose::ClientAuth)), Err(Invalid)),
        of("meant for code", issue(usage(ExtendedKeyUsagePurpose::CodeSigning)), Err(Invalid)),
        of("with what must be understood and is not", issue(Odd::server().with(critical)), Err(Invalid)),
        of(
            "issued further down than allowed",
            shown(&Odd::server().issued_by(&below), &[&below, &narrow]),
            Err(Invalid),
        ),
        of("issued as far down as allowed", shown(&Odd::server().issued_by(&narrow), &[&narrow]), Ok(())),
        // webpki checks the basic constraints of authorities, but not their key usage; both clients
        // use webpki.
        of("issued by an authority for lists", shown(&Odd::server().issued_by(&mute), &[&mute]), Ok(())),
        of(
            "issued by an authority for other names",
            shown(&Odd::server().issued_by(&limited), &[&limited]),
            Err(Invalid),
        ),
        of("three between", shown(&deep, &[&c, &b, &a]), Ok(())),
        of("three between in odd order, and one too many", shown(&deep, &[&a, &unrelated, &c, &b]), Ok(())),
        of("four between", shown(&deeper, &[&d, &c, &b, &a]), Ok(())),
        of("three between of which one is missing", shown(&deep, &[&c, &a]), Err(UnknownIssuer)),
        of("the root among them", shown(&Odd::server().issued_by(&root), &[&root]), Ok(())),
        of("many names", issue(many_names(180)), Ok(())),
    ]
}

fn many_names(count: usize) -> Odd {
    Odd::server().with(|params| {
        let names = (0..count).map(|n| rcgen::SanType::DnsName(format!("n{n}.example.com").try_into().unwrap()));
        params.subject_alt_names.extend(names);
    })
}

#[test]
fn every_certificate_is_accepted_or_refused_as_a_hosted_client_does() {
    for Case { name, authorities, server, host, expected } in common_cases().into_iter().chain(odd_cases()) {
        let authorities: Vec<&str> = authorities.iter().map(String::as_str).collect();
        let expected = expected.map_err(Cause::Certificate);
        assert_eq!(hosted(&authorities, host, Wire::to(&server)), expected, "hosted: {name}");
        assert_eq!(check(&config(&authorities), host, Wire::to(&server)), expected, "{name}");
    }
}

#[test]
fn certificates_of_unsupported_algorithms_are_refused() {
    let refused = Err(Cause::Certificate(CertificateFault::Invalid));
    let p384 = (!cfg!(feature = "p384")).then_some(&rcgen::PKCS_ECDSA_P384_SHA384);
    for algorithm in p384.into_iter().chain([&rcgen::PKCS_ED25519]) {
        let root = Odd::authority("root").root();
        let foreign = Odd::authority("foreign").on(algorithm).root();
        let leaf = Odd::server().on(algorithm).issued_by(&root);
        let ours = config(&[&root.pem()]);
        assert_eq!(check(&ours, HOST, Wire::to(&shown(&leaf, &[]))), refused, "key of {algorithm:?}");
        let leaf = Odd::server().issued_by(&foreign);
        let ours = config(&[&foreign.pem()]);
        assert_eq!(check(&ours, HOST, Wire::to(&shown(&leaf, &[]))), refused, "issued by {algorithm:?}");
    }
}

#[cfg(feature = "p384")]
#[test]
fn certificates_on_p384_are_accepted_as_a_hosted_client_does() {
    let algorithm = &rcgen::PKCS_ECDSA_P384_SHA384;
    let (root, root384) = (Odd::authority("root").root(), Odd::authority("root").on(algorithm).root());
    for (name, leaf, root) in [
        ("on P-384", Odd::server().on(algorithm).issued_by(&root384), &root384),
        ("on P-384 by P-256", Odd::server().on(algorithm).issued_by(&root), &root),
        ("on P-256 by P-384", Odd::server().issued_by(&root384), &root384),
    ] {
        let server = shown(&leaf, &[]);
        assert_eq!(hosted(&[&root.pem()], HOST, Wire::to(&server)), Ok(()), "hosted: {name}");
        assert_eq!(check(&config(&[&root.pem()]), HOST, Wire::to(&server)), Ok(()), "{name}");
    }
    // The name is that of the authority, the key is not.
    let stranger = Odd::authority("root").on(algorithm).root();
    let server = shown(&Odd::server().on(algorithm).issued_by(&stranger), &[]);
    let refused = Err(Cause::Certificate(CertificateFault::UnknownIssuer));
    assert_eq!(check(&config(&[&root384.pem()]), HOST, Wire::to(&server)), refused);
    let thief =
        shows(vec![der(&Odd::server().on(algorithm).issued_by(&root384).pem())], &stranger.key().serialize_pem());
    assert_eq!(check(&config(&[&root384.pem()]), HOST, Wire::to(&thief)), refused);
}

#[cfg(not(feature = "rsa"))]
mod without_rsa {
    use super::*;
    use rcgen::PublicKeyData;

    /// An RSA key that cannot sign: the certificate is refused before a signature is requested.
    struct Rsa;

    impl PublicKeyData for Rsa {
        fn der_bytes(&self) -> &[u8] {
            const KEY: &[u8] = &[0x30, 0x08, 0x02, 0x01, 0x65, 0x02, 0x03, 0x01, 0x00, 0x01];
            KEY
        }

        fn algorithm(&self) -> &'static SignatureAlgorithm {
            &rcgen::PKCS_RSA_SHA256
        }
    }

    impl SigningKey for Rsa {
        fn sign(&self, _message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
            Ok(vec![1; 256])
        }
    }

    #[test]
    fn certificates_signed_by_rsa_are_refused() {
        let Odd { params, .. } = Odd::authority("rsa");
        let root = CertifiedIssuer::self_signed(params, Rsa).unwrap();
        let server = shown(&Odd::server().issued_by(&root), &[]);
        assert_eq!(
            check(&config(&[&root.pem()]), HOST, Wire::to(&server)),
            Err(Cause::Certificate(CertificateFault::Invalid))
        );
    }
}

/// A hosted client accepts six. This limit is lower because verifying many orders of certificates
/// costs battery.
#[test]
fn more_than_four_intermediate_certificates_are_refused() {
    let root = Odd::authority("root").root();
    let mut above = vec![Odd::authority("0").issued_by(&root)];
    for n in 1..5 {
        let next = Odd::authority(&format!("{n}")).issued_by(above.last().unwrap());
        above.push(next);
    }
    let leaf = Odd::server().issued_by(above.last().unwrap());
    let above: Vec<_> = above.iter().rev().collect();
    let refused = Err(Cause::Certificate(CertificateFault::Invalid));
    assert_eq!(check(&config(&[&root.pem()]), HOST, Wire::to(&shown(&leaf, &above))), refused);
}

/// The certificates could have issued each other in any order. The verifier tries them all, but
/// verifies at most eight signatures.
#[test]
fn verification_of_costly_certificates_is_bounded() {
    let root = Odd::authority("root").root();
    let stranger = Odd::authority("root").root();
    let twin = || Odd::authority("root").issued_by(&stranger);
    let twins = [twin(), twin(), twin(), twin()];
    let leaf = Odd::server().issued_by(&twins[0]);
    let server = shown(&leaf, &twins.each_ref());
    let outcome = check(&config(&[&root.pem()]), HOST, Wire::to(&server));
    assert!(matches!(outcome, Err(Cause::Certificate(_))), "{outcome:?}");
}

#[test]
fn server_without_tls_13_has_nothing_in_common() {
    let fixture = Fixture::new();
    assert_eq!(
        check(&fixture.config(), HOST, Wire::to(&speaks(fixture.server(), Versions::Tls12))),
        Err(Cause::Protocol)
    );
    assert_eq!(check(&fixture.config(), HOST, Wire::to(&speaks(fixture.server(), Versions::All))), Ok(()));
}

#[test]
fn validity_depends_on_the_clock() {
    let fixture = Fixture::new();
    let pem = fixture.root.certificate();
    let server: Arc<ServerConfig> =
        ServerTls::new(fixture.root.issue(&CertificateRequest::server(&[HOST])).identity()).config().unwrap();
    let at = |clock: fn() -> u64| {
        let mut options = super::support::options(&[&pem]);
        options.clock = clock;
        check(&options.validate().unwrap(), HOST, Wire::to(&server))
    };
    assert_eq!(at(super::support::clock), Ok(()));
    // The clock is not set.
    assert_eq!(at(|| 0), Err(Cause::Certificate(CertificateFault::NotYetValid)));
    assert_eq!(at(|| u64::MAX), Err(Cause::Certificate(CertificateFault::Expired)));
}

#[test]
fn names_are_sent_and_addresses_are_not() {
    let fixture = Fixture::new();
    for (host, sent) in [(HOST, Some(HOST)), ("db.example.com.", Some(HOST)), ("10.1.2.3", None)] {
        let wire = Wire::to(&fixture.server().config().unwrap());
        let far = wire.far();
        check(&fixture.config(), host, wire).unwrap();
        let far = far.borrow();
        let super::support::Peer::Rustls(tls) = &far.peer else { unreachable!() };
        assert_eq!(tls.server_name(), sent);
    }
}
