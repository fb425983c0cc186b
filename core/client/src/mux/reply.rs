//! Answers to requests.

use super::RequestError;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::fmt;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{CqlError, Envelope, Flags, Header, Opcode, Outcome, OutcomeKind, Response, Rows};
use serde::Deserialize;

/// The maximum length in bytes of a body that shares a buffer.
const SHARED_BYTES_MAX: usize = 512;
/// The size in bytes of a shared buffer. A reply that is kept retains no more than this.
const BUFFER_BYTES: usize = 4096;

/// A server's answer: header and body as received, after decompression.
///
/// A body of at most 512 bytes shares a buffer of 4 KiB with other replies, which saves an allocation
/// for each. The buffer is freed when the last of its replies is dropped, so a reply that is kept
/// retains up to 4 KiB. [`Reply::into_body`] returns a copy without further memory. A longer body has
/// its own memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub(super) host: MuxId,
    pub(super) header: Header,
    pub(super) body: Bytes,
}

/// Copies the body of a received envelope.
///
/// - `buffer`: of the connection; the bodies of small replies are taken from it.
///
/// # Errors
///
/// There is no memory for a body with its own memory.
pub(super) fn copy_body(body: &[u8], buffer: &mut BytesMut) -> Result<Bytes, TryReserveError> {
    if body.len() <= SHARED_BYTES_MAX {
        if buffer.capacity() < body.len() {
            // If all replies of the last buffer are dropped, the buffer is used again.
            buffer.reserve(BUFFER_BYTES);
        }
        buffer.extend_from_slice(body);
        return Ok(buffer.split().freeze());
    }
    let mut own = Vec::new();
    own.try_reserve_exact(body.len())?;
    own.extend_from_slice(body);
    Ok(own.into())
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

    /// Decodes the rows of a result.
    ///
    /// # Errors
    ///
    /// [`RequestError::Reply`]: the body is malformed. [`RequestError::Unexpected`]: the answer has no
    /// rows.
    pub fn rows(&self) -> Result<Rows<'_>, RequestError> {
        let unexpected = RequestError::Unexpected(self.header.opcode);
        let response = self.response().map_err(RequestError::Reply)?;
        let Response::Result(outcome) = response else { return Err(unexpected) };
        outcome.rows().map_err(RequestError::Reply)?.ok_or(unexpected)
    }

    /// Decodes the rows of a result as values of a type: see [`Rows::deserialize`]. Of a page, its rows;
    /// [`Call::rows`](super::Call::rows) reads all pages.
    ///
    /// ```
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order {
    ///     id: i32,
    ///     note: Option<String>,
    /// }
    ///
    /// async fn orders<P: Platform>(session: &Session<P>) -> Result<Vec<Order>, RequestError> {
    ///     session.query("SELECT id, note FROM shop.orders").send().await?.all()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reply::rows`]; [`RequestError::Row`] names the column of the first row that is no `T`.
    pub fn all<'a, T: Deserialize<'a>>(&'a self) -> Result<Vec<T>, RequestError> {
        self.rows()?.deserialize().collect::<Result<_, _>>().map_err(|error| RequestError::Row(Box::new(error)))
    }

    /// Decodes the row of a result that has at most one; `None` if it has none.
    ///
    /// # Errors
    ///
    /// As [`Reply::all`]; [`RequestError::ManyRows`] if there is more than one row.
    pub fn one<'a, T: Deserialize<'a>>(&'a self) -> Result<Option<T>, RequestError> {
        let rows = self.rows()?;
        if rows.len() > 1 {
            return Err(RequestError::ManyRows { count: rows.len() });
        }
        rows.deserialize().next().transpose().map_err(|error| RequestError::Row(Box::new(error)))
    }

    /// Whether a conditional statement (`IF ..`), or a batch with one, was applied. If not, the rows have the
    /// values that were found instead: [`Reply::all`] with a field for each column of them; another one,
    /// named `[applied]`, is skipped.
    ///
    /// # Errors
    ///
    /// As [`Reply::rows`], if the statement has no condition; [`RequestError::Row`] if the answer does not contain
    /// whether it was applied.
    pub fn applied(&self) -> Result<bool, RequestError> {
        let rows = self.rows()?;
        #[derive(Deserialize)]
        struct Applied {
            #[serde(rename = "[applied]")]
            is_applied: bool,
        }
        let applied: Option<Applied> =
            rows.deserialize().next().transpose().map_err(|error| RequestError::Row(Box::new(error)))?;
        Ok(applied.is_some_and(|row| row.is_applied))
    }

    /// The position after this page, for [`Call::paging_state`](super::Call::paging_state); `None` if it is the
    /// last.
    ///
    /// # Errors
    ///
    /// As [`Reply::rows`].
    pub fn paging_state(&self) -> Result<Option<Vec<u8>>, RequestError> {
        let position = self.rows()?.paging_state.filter(|position| !position.is_empty());
        Ok(position.map(<[u8]>::to_vec))
    }

    /// The id of the server's trace, if the call [asked for it](super::Call::tracing).
    ///
    /// # Errors
    ///
    /// [`RequestError::Reply`]: the body is malformed.
    pub fn tracing_id(&self) -> Result<Option<[u8; 16]>, RequestError> {
        Ok(self.envelope().parts().map_err(RequestError::Reply)?.tracing_id)
    }

    /// The server's warnings, such as that a batch is large.
    ///
    /// # Errors
    ///
    /// [`RequestError::Reply`]: the body is malformed.
    pub fn warnings(&self) -> Result<impl ExactSizeIterator<Item = &str>, RequestError> {
        Ok(self.envelope().parts().map_err(RequestError::Reply)?.warnings)
    }

    /// The custom payload of a server with its own query handler.
    ///
    /// # Errors
    ///
    /// [`RequestError::Reply`]: the body is malformed.
    pub fn custom_payload(&self) -> Result<impl ExactSizeIterator<Item = (&str, Option<&[u8]>)>, RequestError> {
        Ok(self.envelope().parts().map_err(RequestError::Reply)?.custom_payload)
    }

    /// Whether the statement has changed the schema.
    #[inline]
    pub(super) fn is_schema_change(&self) -> bool {
        const KIND: [u8; 4] = OutcomeKind::SchemaChange.number().to_be_bytes();
        if self.header.opcode != Opcode::Result {
            return false;
        }
        if self.header.flags == Flags::NONE {
            return self.body.first_chunk() == Some(&KIND);
        }
        matches!(self.response(), Ok(Response::Result(Outcome { kind: OutcomeKind::SchemaChange, .. })))
    }

    /// Returns the body, with the fields before the message that its flags imply: see
    /// [`Envelope::parts`].
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Converts the answer to its body, as [`Self::body`] returns it. A body of at most 512 bytes is
    /// copied.
    #[must_use]
    pub fn into_body(self) -> Vec<u8> {
        if self.body.len() <= SHARED_BYTES_MAX { self.body.to_vec() } else { self.body.into() }
    }
}

impl fmt::Debug for Reply {
    /// Omits the body, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("host", &self.host).field("envelope", &self.envelope()).finish()
    }
}
