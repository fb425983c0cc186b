//! The client metadata that servers receive in the handshake.
//!
//! Read first: MongoDB Handshake, "Supporting Wrapping Libraries", "Metadata updates after MongoClient
//! initialization" and "Limitations".

use super::super::{Client, Error, OptionError, Platform, lock};
use super::{ClientOptions, DriverInfo};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use poolhouse_driver::OperationError;
use poolhouse_wire::hello::{ClientMetadata, Environment, MetadataError, MetadataOptions};

/// A placeholder with the maximum length of a [`Platform`]'s driver name.
const LONGEST_NAME: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
/// A placeholder with the maximum length of a [`Platform`]'s driver version.
const LONGEST_VERSION: &str = "vvvvvvvvvvvvvvvvvvvvvvvv";

impl ClientOptions {
    /// Returns the metadata of a client with these options on `P`.
    ///
    /// - `appended`: the libraries that were added after the client was created.
    pub(in super::super) fn metadata<P: Platform>(
        &self,
        appended: &[DriverInfo],
        environment: &Environment,
    ) -> Result<ClientMetadata, MetadataError> {
        const {
            assert!(P::DRIVER_NAME.len() <= LONGEST_NAME.len(), "the platform's DRIVER_NAME is too long");
            assert!(P::DRIVER_VERSION.len() <= LONGEST_VERSION.len(), "the platform's DRIVER_VERSION is too long");
        }
        let driver = self.driver(P::DRIVER_NAME, P::DRIVER_VERSION, P::PLATFORM_NAME, appended);
        self.metadata_of(driver, environment)
    }

    /// Checks that the metadata of these options fits for any platform.
    pub(super) fn check_metadata(&self) -> Result<(), MetadataError> {
        // Platform and environment are truncated or omitted if they do not fit, so they are empty
        // in this check.
        self.metadata_of(self.driver(LONGEST_NAME, LONGEST_VERSION, "", &[]), &Environment::default()).map(drop)
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
    pub(super) fn driver(
        &self,
        name: &str,
        version: &str,
        platform: &str,
        appended: &[DriverInfo],
    ) -> (String, String, String) {
        let mut merged = (name.to_owned(), version.to_owned(), platform.to_owned());
        for info in self.driver_info.iter().chain(appended) {
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

impl DriverInfo {
    /// Whether both add the same metadata: an empty text is none.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        fn texts(info: &DriverInfo) -> [Option<&str>; 2] {
            [&info.version, &info.platform].map(|text| text.as_deref().filter(|text| !text.is_empty()))
        }
        self.name == other.name && texts(self) == texts(other)
    }

    /// Checks the texts.
    pub(super) fn check(&self) -> Result<(), OptionError> {
        if self.name.is_empty() {
            return Err(OptionError::new("driver_info.name", "", "not be empty"));
        }
        let texts = [
            ("driver_info.name", Some(&self.name)),
            ("driver_info.version", self.version.as_ref()),
            ("driver_info.platform", self.platform.as_ref()),
        ];
        for (option, text) in texts {
            if let Some(text) = text.filter(|text| text.contains('|')) {
                return Err(OptionError::new(option, text, "not contain |, which separates libraries"));
            }
        }
        Ok(())
    }
}

/// The parts of a client's metadata that are not in its options.
#[derive(Debug)]
pub(in super::super) struct Metadata {
    /// Detected when the client was created, because it must not change.
    environment: Environment,
    /// The libraries that were added since.
    appended: Vec<DriverInfo>,
}

impl Metadata {
    pub(in super::super) const fn new(environment: Environment) -> Self {
        Self { environment, appended: Vec::new() }
    }
}

impl<P: Platform> Client<P> {
    /// Adds a library that uses this client to the client metadata, which new connections of the pools
    /// and of the monitors send to their servers. Established connections keep theirs. Has no effect
    /// if an equal library was added before, here or by
    /// [`ClientOptions::driver_info`]; [`Client::options`] keeps the libraries that the client was
    /// created with.
    ///
    /// - `info`: its texts follow those of the earlier libraries, separated by `|`. The server accepts
    ///   512 bytes of metadata: of a long one, details of the environment and of the operating system
    ///   are left out first, then the end of the platform.
    ///
    /// Cost: linear in the number of libraries. It never waits for a server, and check-outs are not
    /// affected.
    ///
    /// # Errors
    ///
    /// [`SetupError::Option`](crate::SetupError::Option): the name is empty, or a text contains `|`.
    /// [`SetupError::Metadata`](crate::SetupError::Metadata): the names and versions of all libraries
    /// are too long. [`Error::Operation`] in the child of a fork. Nothing has changed then.
    ///
    /// Source: MongoDB Handshake, "Metadata updates after MongoClient initialization" and "Appending
    /// metadata".
    pub fn append_metadata(&self, info: DriverInfo) -> Result<(), Error> {
        // Before the lock: a thread that does not exist in the child may hold it.
        if self.is_forked() {
            return Err(Error::from(OperationError::Forked));
        }
        info.check()?;
        let options = self.options();
        // Held until the end, or one of two calls could undo the other.
        let mut metadata = lock(&self.inner.metadata);
        let mut known = options.driver_info.iter().chain(&metadata.appended);
        if known.any(|known| known.is_same(&info)) {
            return Ok(());
        }
        metadata.appended.push(info);
        match options.metadata::<P>(&metadata.appended, &metadata.environment) {
            Ok(document) => self.inner.core.set_metadata(document),
            Err(error) => {
                metadata.appended.pop();
                return Err(error.into());
            }
        }
        Ok(())
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
