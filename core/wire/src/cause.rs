//! Why something failed: a word that is small enough to keep in a slot, and the error beneath it.

#[cfg(test)]
mod tests;

#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
use alloc::{boxed::Box, sync::Arc};
use core::error::Error;
use core::fmt;
use core::hash::{Hash, Hasher};

/// Why a connection, a check or a check-out failed.
///
/// `Copy` and without text of a peer, so that it fits into slots, events and errors of every build, and
/// can hold no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The socket failed: refused, reset, or closed by the peer.
    Network,
    /// The peer did not answer in time.
    NetworkTimeout,
    /// The host name could not be resolved.
    Dns,
    /// The peer's certificate or host name was refused, or the peer refused ours. An I/O error inside the TLS handshake is
    /// [`Cause::Network`].
    Certificate(CertificateFault),
    /// The peer broke the wire protocol.
    Protocol,
    /// The server answered a command with `ok: 0` and this code (0 when it gave none).
    Command {
        /// The numeric error code.
        code: i32,
    },
    /// The server refused the credentials, or could not prove that it knows them.
    Authentication,
    /// Load-balanced mode, and the server's hello named no `serviceId`.
    MissingServiceId,
    /// The server's monitor timed out and interrupted the connections in use.
    Interrupted,
    /// The caller gave up.
    Cancelled,
    /// The pool or the client was closed.
    Closed,
    /// The process was forked; what belongs to the parent is not used by the child.
    Forked,
    /// This side is out of memory, table places or descriptors.
    Resources,
}

impl Cause {
    /// Whether this is a network error or a network timeout: the failures that may be repaired by another connection.
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
            Self::Closed => "closed",
            Self::Forked => "the process was forked",
            Self::Resources => "out of local resources",
        })
    }
}

impl Error for Cause {}

/// The error beneath a [`Cause`], as the operating system, TLS or a resolver reported it. For people to read.
///
/// With feature `alloc` it holds the error itself, which all its clones share; [`Reason::get`] returns it. Without `alloc` it holds nothing and takes no
/// space. It contains no secret: only errors of sockets, TLS, resolvers and of the wire protocol become reasons.
///
/// Any two reasons are equal. Errors are compared by what a program can act on, so an error with a reason equals the same error without one.
#[derive(Clone, Default)]
pub struct Reason {
    /// Boxed as well, because an `Arc` of a trait object has the size of two pointers.
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    error: Option<Arc<Box<dyn Error + Send + Sync>>>,
}

impl Reason {
    /// Nothing was reported.
    pub const NONE: Self = Self {
        #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
        error: None,
    };

    /// This error was reported. Allocates; without feature `alloc` the error is dropped.
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

    /// The error, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
        return self.error.as_deref().map(|error| &**error);
        #[cfg(not(all(feature = "alloc", target_has_atomic = "ptr")))]
        None
    }

    /// Whether nothing was reported.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.get().is_none()
    }

    /// The error as the source of another one.
    #[doc(hidden)]
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.get().map(|error| -> &(dyn Error + 'static) { error })
    }

    /// Writes it behind the text that it is the reason of.
    #[doc(hidden)]
    pub fn append(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// The error's text; nothing if there is none.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().map_or(Ok(()), |error| fmt::Display::fmt(error, f))
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

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CertificateFault {
    /// Its time is over.
    Expired,
    /// Its time has not come yet; or this machine's clock is wrong.
    NotYetValid,
    /// No authority that is trusted has issued it; perhaps one of the same name but with another key.
    UnknownIssuer,
    /// It is another host's.
    WrongName,
    /// It has been revoked.
    Revoked,
    /// It is not what TLS allows: malformed, issued by who may not issue any, or not meant for a server.
    Invalid,
    /// The server did not accept this side's certificate, or wants one and got none.
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
            Self::Invalid => "it is malformed, issued by who may not, or not meant for a server",
            Self::RefusedByPeer => "the server did not accept that of this client, or wants one",
        })
    }
}

const _: () = assert!(size_of::<Option<Cause>>() == 8);
