//! The certificate of the servers.

use crate::process::output;
use poolhouse_fake::tls::{CertificateRequest, Folder, Holder};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// A certificate for loopback, its key and its authority, in files that are removed with this value.
pub(super) struct Certificates {
    folder: Folder,
}

impl Certificates {
    pub(super) fn new() -> Self {
        let (root, folder) = (Holder::root("root"), Folder::new());
        folder.write("ca.pem", root.certificate());
        folder.write("server.pem", root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity().pem());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The certificate of the authority.
    pub(super) fn authority(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Arguments of a mongod that accepts TLS too.
    pub(super) fn of_mongod(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            ["--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates"].map(OsString::from).into();
        arguments.extend(["--tlsCertificateKeyFile".into(), self.path("server.pem").into()]);
        arguments.extend(["--tlsCAFile".into(), self.authority().into()]);
        arguments
    }

    /// Lines of the configuration of a Cassandra that accepts TLS too.
    pub(super) fn of_cassandra(&self) -> String {
        format!(
            "client_encryption_options:
  enabled: true
  optional: true
  keystore: {}
  truststore: {}
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory",
            self.path("server.pem").display(),
            self.authority().display()
        )
    }

    /// Options of a Java that trusts the authority.
    pub(super) fn of_java(&self) -> String {
        let store = self.path("trust.p12");
        if !store.exists() {
            let mut keytool = Command::new("keytool");
            keytool.args([
                "-importcert",
                "-noprompt",
                "-storetype",
                "PKCS12",
                "-storepass",
                PASSWORD,
                "-alias",
                "root",
            ]);
            // Without it, the client that needs the file states the reason.
            let _ = output(keytool.arg("-file").arg(self.authority()).arg("-keystore").arg(&store));
        }
        format!("-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStorePassword={PASSWORD}", store.display())
    }
}

/// Of a file with a public certificate.
const PASSWORD: &str = "changeit";
