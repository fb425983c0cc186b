//! What a request comes back with.

use alloc::vec::Vec;
use core::fmt;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{CqlError, Envelope, Header, Response};

/// A server's answer: header and body, as they came and no longer compressed.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub(super) host: MuxId,
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Who answered: see [`Session::hosts`](super::Session::hosts).
    #[must_use]
    pub const fn host(&self) -> MuxId {
        self.host
    }

    /// Header and body.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'_> {
        Envelope { header: self.header, body: &self.body }
    }

    /// What the server says.
    ///
    /// Cost: linear in the body, but for that of a RESULT, which is left to the caller.
    ///
    /// # Errors
    ///
    /// Those of [`Envelope::response`]: the body is malformed.
    pub fn response(&self) -> Result<Response<'_>, CqlError> {
        self.envelope().response()
    }

    /// The body, with what its flags say in front of the message: see [`Envelope::parts`].
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The same, to be kept.
    #[must_use]
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }
}

impl fmt::Debug for Reply {
    /// Without the body, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("host", &self.host).field("envelope", &self.envelope()).finish()
    }
}
