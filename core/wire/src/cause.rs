//! Causes of failures: a small code that fits into a slot, and the underlying error.

#[cfg(test)]
mod tests;

#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
use alloc::{boxed::Box, sync::Arc};
use core::error::Error;
use core::fmt;
use core::hash::{Hash, Hasher};

/// Why a connection, a check or a check-out failed.
///
/// `Copy` and free of text of a peer: it fits into slots, events and errors of every build, and
/// cannot contain a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Cause {
    /// The socket failed: refused, reset, or closed by the peer.
    Network,
    /// The peer did not answer in time.
    NetworkTimeout,
    /// The host name could not be resolved.
    Dns,
    /// The peer's certificate or host name was rejected, or the peer rejected this client's
    /// certificate. An I/O error inside the TLS handshake is [`Cause::Network`].
    Certificate(CertificateFault),
    /// The peer violated the wire protocol.
    Protocol,
    /// The server answered a command with `ok: 0` and this code (0 if the reply has none).
    Command {
        /// The numeric error code.
        code: i32,
    },
    /// The server refused the credentials, or failed to prove that it knows them.
    Authentication,
    /// The client is in load-balanced mode, and the server's hello has no `serviceId`.
    MissingServiceId,
    /// The server's monitor timed out and interrupted the connections in use.
    Interrupted,
    /// The caller cancelled the operation.
    Cancelled,
    /// The owner of the connection panicked.
    Panicked,
    /// The pool or the client was closed.
    Closed,
    /// The process was forked, and the child must not use resources of the parent.
    Forked,
    /// This side is out of memory, table slots or descriptors.
    Resources,
    /// An error that this library does not define, such as that of the manager of a generic pool.
    Other,
}

impl Cause {
    /// Whether this is a network error or a network timeout: failures that may not recur on another
    /// connection.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(self, Self::Network | Self::NetworkTimeout)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network error",
            Self::NetworkTimeout => "network timeout",
            Self::Dns => "host name not resolved",
            Self::Certificate(fault) => return write!(f, "certificate refused: {fault}"),
            Self::Protocol => "wire protocol error",
            Self::Command { code } => return write!(f, "command failed with code {code}"),
            Self::Authentication => "authentication failed",
            Self::MissingServiceId => {
                "Driver attempted to initialize in load balancing mode, but the server does not support this mode"
            }
            Self::Interrupted => "interrupted due to server monitor timeout",
            Self::Cancelled => "cancelled by the caller",
            Self::Panicked => "the owner of the connection panicked",
            Self::Closed => "closed",
            Self::Forked => "the process was forked",
            Self::Resources => "out of local resources",
            Self::Other => "error of the connection",
        })
    }
}

impl Error for Cause {}

/// The underlying error of a [`Cause`], as reported by the operating system, TLS or a resolver. For
/// people to read.
///
/// With feature `alloc` it holds the error itself, shared by all clones; [`Reason::get`] returns
/// it. Without `alloc` it holds nothing and takes no space. It contains no secret: only errors of
/// sockets, TLS, resolvers and of the wire protocol become reasons, and texts with which a server
/// refuses a connection, without those that contain a password.
///
/// All reasons are equal, because errors are compared only by the parts that a program can act on.
/// So an error with a reason equals the same error without one.
#[derive(Clone, Default)]
pub struct Reason {
    /// Boxed inside the `Arc`, because an `Arc` of a trait object has the size of two pointers.
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    error: Option<Arc<Box<dyn Error + Send + Sync>>>,
}

impl Reason {
    /// No error was reported.
    pub const NONE: Self = Self {
        #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
        error: None,
    };

    /// Stores the reported error. Allocates; without feature `alloc` the error is dropped.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
        return Self { error: Some(Arc::new(Box::new(error))) };
        #[cfg(not(all(feature = "alloc", target_has_atomic = "ptr")))]
        {
            drop(error);
            Self::NONE
        }
    }

    /// The error, if any.
    #[must_use]
    pub fn get(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
        return self.error.as_deref().map(|error| &**error);
        #[cfg(not(all(feature = "alloc", target_has_atomic = "ptr")))]
        None
    }

    /// Whether no error was reported.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.get().is_none()
    }

    /// The error, for use as `source` of another error.
    #[doc(hidden)]
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.get().map(|error| -> &(dyn Error + 'static) { error })
    }

    /// Writes ": " and the error, to follow the text of the error that has this reason.
    #[doc(hidden)]
    pub fn append(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// The error's text; empty if there is no error.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().map_or(Ok(()), |error| fmt::Display::fmt(error, f))
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Reason {
    fn format(&self, f: defmt::Formatter<'_>) {
        match self.get() {
            // An error of another crate, formatted on the device: builds without a heap have none.
            Some(error) => defmt::write!(f, "{}", defmt::Display2Format(error)),
            None => defmt::write!(f, "-"),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reason").field(&self.get()).finish()
    }
}

impl PartialEq for Reason {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reason {}

impl Hash for Reason {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The fault of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CertificateFault {
    /// It has expired.
    Expired,
    /// It is not valid yet, or this machine's clock is wrong.
    NotYetValid,
    /// It was not issued by a trusted authority; possibly by an authority with a trusted name but
    /// another key.
    UnknownIssuer,
    /// It was issued for another host.
    WrongName,
    /// It has been revoked.
    Revoked,
    /// It is the certificate of an authority (`CA:TRUE`), and not itself among those to trust.
    Authority,
    /// It has version 1, which has no extensions, and so no names of hosts.
    Version1,
    /// It is malformed, its issuer is not allowed to issue certificates, or it is not intended for
    /// a server.
    Invalid,
    /// The server did not accept this client's certificate, or requires one and received none.
    RefusedByPeer,
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::UnknownIssuer => "its issuer is not trusted",
            Self::WrongName => "it is not valid for the name of the host",
            Self::Revoked => "it has been revoked",
            Self::Authority => "it is that of an authority (CA:TRUE), and not itself among those to trust",
            Self::Version1 => "it has version 1, which has no names of hosts (subjectAltName)",
            Self::Invalid => {
                "it is malformed, its issuer is not allowed to issue certificates, or it is not intended for a server"
            }
            Self::RefusedByPeer => {
                "the server rejected this client's certificate, or requires one: set tlsCertificateKeyFile"
            }
        })
    }
}

const _: () = assert!(size_of::<Option<Cause>>() == 8);
