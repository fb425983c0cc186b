//! The `client` document of a handshake: metadata of the client.

use core::fmt;

use super::environment::Environment;
use crate::bson::{DocumentWriter, RawDocument};
use crate::error::EncodeError;
use crate::sink::Sink;

/// The longest application name, in bytes.
pub const APPLICATION_NAME_BYTES_MAX: usize = 128;

/// Maximum length of the metadata document that a server accepts, in bytes.
pub const METADATA_BYTES_MAX: usize = 512;

/// The content of the client metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataOptions<'a> {
    /// `appName`: at most [`APPLICATION_NAME_BYTES_MAX`] bytes; an empty one is left out.
    pub application_name: Option<&'a str>,
    /// The driver's name, followed by the names of libraries based on it, separated by `|`.
    pub driver_name: &'a str,
    /// The driver's version, followed by those of the libraries.
    pub driver_version: &'a str,
    /// The kind of operating system: `Linux`, `Darwin`, `Windows`, or `unknown`.
    pub os_type: &'a str,
    /// The name of the operating system.
    pub os_name: Option<&'a str>,
    /// The processor architecture.
    pub os_architecture: Option<&'a str>,
    /// The version of the operating system.
    pub os_version: Option<&'a str>,
    /// The language, its compiler and the runtime.
    pub platform: Option<&'a str>,
    /// The client's runtime environment.
    pub environment: Option<&'a Environment>,
}

/// Client metadata cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MetadataError {
    /// The application name is longer than [`APPLICATION_NAME_BYTES_MAX`].
    ApplicationNameTooLong {
        /// Its length.
        length_bytes: usize,
    },
    /// The parts that cannot be omitted exceed [`METADATA_BYTES_MAX`].
    TooLong,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplicationNameTooLong { length_bytes } => {
                write!(f, "appName is {length_bytes} bytes long, but must be at most {APPLICATION_NAME_BYTES_MAX}")
            }
            Self::TooLong => write!(f, "driver name and version do not fit {METADATA_BYTES_MAX} bytes of metadata"),
        }
    }
}

crate::debug_as_display!(MetadataError);

impl core::error::Error for MetadataError {}

/// The `client` document, built once and sent with every handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientMetadata {
    document: heapless::Vec<u8, METADATA_BYTES_MAX>,
}

/// Level of detail; each variant omits more than the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Everything,
    /// Omits all of `env` except its name.
    ShortEnv,
    /// Omits all of `os` except its type.
    ShortOs,
    /// Omits `env`.
    NoEnv,
    /// Shortens `platform` until the document fits.
    ShortPlatform,
}

impl ClientMetadata {
    /// Builds the document. If it exceeds [`METADATA_BYTES_MAX`], omits, in this order: all of
    /// `env` except its name; all of `os` except its type; `env`; the end of `platform`.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    ///
    /// Source: MongoDB Handshake, "Limitations".
    pub fn new(options: &MetadataOptions<'_>) -> Result<Self, MetadataError> {
        let length_bytes = options.application_name.map_or(0, str::len);
        if length_bytes > APPLICATION_NAME_BYTES_MAX {
            return Err(MetadataError::ApplicationNameTooLong { length_bytes });
        }
        let platform = options.platform.unwrap_or_default();
        for detail in [Detail::Everything, Detail::ShortEnv, Detail::ShortOs, Detail::NoEnv] {
            if let Ok(metadata) = Self::write(options, detail, platform) {
                return Ok(metadata);
            }
        }
        for end in (0..platform.len()).rev() {
            if let Some(shorter) = platform.get(..end) {
                if let Ok(metadata) = Self::write(options, Detail::ShortPlatform, shorter) {
                    return Ok(metadata);
                }
            }
        }
        Err(MetadataError::TooLong)
    }

    fn write(options: &MetadataOptions<'_>, detail: Detail, platform: &str) -> Result<Self, EncodeError> {
        let mut document = heapless::Vec::new();
        DocumentWriter::write(&mut document, |client| {
            if let Some(name) = options.application_name.filter(|name| !name.is_empty()) {
                client.document("application", |application| application.str("name", name).map(drop))?;
            }
            client.document("driver", |driver| {
                driver.str("name", options.driver_name)?.str("version", options.driver_version).map(drop)
            })?;
            client.document("os", |os| write_os(os, options, detail))?;
            if !platform.is_empty() {
                client.str("platform", platform)?;
            }
            match options.environment {
                Some(env) if has_content(env, detail) => {
                    client.document("env", |document| write_env(document, env, detail)).map(drop)
                }
                Some(_) | None => Ok(()),
            }
        })?;
        Ok(Self { document })
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> RawDocument<'_> {
        // Cannot fail: `DocumentWriter` wrote a valid document.
        RawDocument::new(&self.document).unwrap_or_default()
    }
}

/// Whether `env` has content at this level of detail.
fn has_content(env: &Environment, detail: Detail) -> bool {
    match detail {
        Detail::Everything => !env.is_empty(),
        Detail::ShortEnv | Detail::ShortOs => env.is_faas(),
        Detail::NoEnv | Detail::ShortPlatform => false,
    }
}

fn write_os<S: Sink>(
    os: &mut DocumentWriter<'_, S>,
    options: &MetadataOptions<'_>,
    detail: Detail,
) -> Result<(), EncodeError> {
    os.str("type", if options.os_type.is_empty() { "unknown" } else { options.os_type })?;
    if detail >= Detail::ShortOs {
        return Ok(());
    }
    let more = [("name", options.os_name), ("architecture", options.os_architecture), ("version", options.os_version)];
    for (key, value) in more {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            os.str(key, value)?;
        }
    }
    Ok(())
}

fn write_env<S: Sink>(
    document: &mut DocumentWriter<'_, S>,
    env: &Environment,
    detail: Detail,
) -> Result<(), EncodeError> {
    if let Some(faas) = env.faas {
        document.str("name", faas.name())?;
    }
    if detail >= Detail::ShortEnv {
        return Ok(());
    }
    for (key, value) in [("timeout_sec", env.timeout_sec), ("memory_mb", env.memory_mb)] {
        if let Some(value) = value {
            document.int32(key, value)?;
        }
    }
    if let Some(region) = &env.region {
        document.str("region", region)?;
    }
    if env.is_docker || env.is_kubernetes {
        document.document("container", |container| {
            if env.is_docker {
                container.str("runtime", "docker")?;
            }
            if env.is_kubernetes {
                container.str("orchestrator", "kubernetes")?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl fmt::Debug for ClientMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientMetadata({} bytes)", self.document.len())
    }
}
