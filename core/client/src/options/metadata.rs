//! The client metadata that servers receive in the handshake.
//!
//! Read first: MongoDB Handshake, "Supporting Wrapping Libraries" and "Limitations".

use super::super::Platform;
use super::ClientOptions;
use alloc::borrow::ToOwned;
use alloc::string::String;
use poolhouse_wire::hello::{ClientMetadata, Environment, MetadataError, MetadataOptions};

/// A placeholder with the maximum length of a [`Platform`]'s driver name.
const LONGEST_NAME: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
/// A placeholder with the maximum length of a [`Platform`]'s driver version.
const LONGEST_VERSION: &str = "vvvvvvvvvvvvvvvvvvvvvvvv";

impl ClientOptions {
    /// Returns the metadata of a client with these options on `P`.
    pub(in super::super) fn metadata<P: Platform>(
        &self,
        environment: &Environment,
    ) -> Result<ClientMetadata, MetadataError> {
        const {
            assert!(P::DRIVER_NAME.len() <= LONGEST_NAME.len(), "the platform's DRIVER_NAME is too long");
            assert!(P::DRIVER_VERSION.len() <= LONGEST_VERSION.len(), "the platform's DRIVER_VERSION is too long");
        }
        self.metadata_of(self.driver(P::DRIVER_NAME, P::DRIVER_VERSION, P::PLATFORM_NAME), environment)
    }

    /// Checks that the metadata of these options fits for any platform.
    pub(super) fn check_metadata(&self) -> Result<(), MetadataError> {
        // Platform and environment are truncated or omitted if they do not fit, so they are empty
        // in this check.
        self.metadata_of(self.driver(LONGEST_NAME, LONGEST_VERSION, ""), &Environment::default()).map(drop)
    }

    fn metadata_of(
        &self,
        (driver_name, driver_version, platform): (String, String, String),
        environment: &Environment,
    ) -> Result<ClientMetadata, MetadataError> {
        ClientMetadata::new(&MetadataOptions {
            application_name: self.app_name.as_deref(),
            driver_name: &driver_name,
            driver_version: &driver_version,
            os_type: os_type(),
            os_name: Some(std::env::consts::OS),
            os_architecture: Some(std::env::consts::ARCH),
            os_version: None,
            platform: Some(&platform),
            environment: Some(environment),
        })
    }

    /// Joins the names, versions and platforms of the driver and of the libraries that use it.
    ///
    /// Source: MongoDB Handshake, "Supporting Wrapping Libraries".
    pub(super) fn driver(&self, name: &str, version: &str, platform: &str) -> (String, String, String) {
        let mut merged = (name.to_owned(), version.to_owned(), platform.to_owned());
        for info in &self.driver_info {
            let parts = [
                (&mut merged.0, Some(&info.name)),
                (&mut merged.1, info.version.as_ref()),
                (&mut merged.2, info.platform.as_ref()),
            ];
            for (text, more) in parts {
                if let Some(more) = more.filter(|more| !more.is_empty()) {
                    text.push('|');
                    text.push_str(more);
                }
            }
        }
        merged
    }
}

/// Returns the handshake's name for the type of operating system.
fn os_type() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    }
}
