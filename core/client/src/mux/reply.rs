//! Answers to requests.

use alloc::vec::Vec;
use core::fmt;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{CqlError, Envelope, Header, Response};

/// A server's answer: header and body as received, after decompression.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub(super) host: MuxId,
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Returns the host that answered: see [`Session::hosts`](super::Session::hosts).
    #[must_use]
    pub const fn host(&self) -> MuxId {
        self.host
    }

    /// Returns header and body.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'_> {
        Envelope { header: self.header, body: &self.body }
    }

    /// Decodes the answer.
    ///
    /// Cost: linear in the body. The body of a RESULT is not read: the caller decodes it.
    ///
    /// # Errors
    ///
    /// Those of [`Envelope::response`]: the body is malformed.
    pub fn response(&self) -> Result<Response<'_>, CqlError> {
        self.envelope().response()
    }

    /// Returns the body, with the fields before the message that its flags imply: see
    /// [`Envelope::parts`].
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Converts the answer to its body, as [`Self::body`] returns it.
    #[must_use]
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }
}

impl fmt::Debug for Reply {
    /// Omits the body, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("host", &self.host).field("envelope", &self.envelope()).finish()
    }
}
