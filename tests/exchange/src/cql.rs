//! Common code of session benchmarks: a bare exchange of the same bytes over any socket, which
//! reads only the header of each reply.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use futures_lite::{AsyncRead, AsyncWrite};
use poolhouse_cql::{
    Consistency, Direction, HEADER_BYTES, Header, Limits, Opcode, Outgoing, Parameters, Request, Startup, Version,
    decode_header,
};
use poolhouse_wire::Decoded;

/// Size of a session's read buffer.
pub const INPUT_BYTES: usize = 32 * 1024;

/// A socket that speaks version 4, without a session.
#[derive(Debug)]
pub struct Bare<S> {
    stream: S,
    /// The request, with stream id 0.
    request: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Bare<S> {
    /// Performs the handshake over a connected socket; `statement` is the text of the requests.
    pub async fn over(stream: S, statement: &str) -> Self {
        let mut request = Vec::new();
        let parameters = Parameters::new(Consistency::One);
        let encode = |request: Request<'_>, bytes: &mut Vec<u8>| {
            request.encode(bytes, Outgoing::new(Version::V4, 0), &Limits::DEFAULT).expect("a request");
        };
        encode(Request::Query { text: statement, parameters }, &mut request);
        let startup = Startup { compression: None, driver_name: None, driver_version: None, options: &[] };
        let mut output = Vec::new();
        encode(Request::Startup(startup), &mut output);
        let mut bare = Self { stream, request, input: vec![0; INPUT_BYTES], output };
        assert_eq!(bare.converse(1, 0, Vec::new()).await, Some(Opcode::Ready));
        bare
    }

    /// Returns the socket, after the handshake.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Makes `operations` requests, at most `in_flight` at a time. All requests for which stream
    /// ids are free are sent by one write.
    pub async fn exchange(&mut self, in_flight: u32, operations: u32) {
        let first = in_flight.min(operations);
        let ids = (0..i16::MAX).chain([i16::MAX]).take(first as usize).collect();
        assert_eq!(self.converse(operations, operations, ids).await, Some(Opcode::Result));
    }

    /// Sends the pending output and `requests` requests, on free stream ids, until `replies`
    /// replies have been received. Returns the opcode of the last reply.
    async fn converse(&mut self, replies: u32, requests: u32, mut free: Vec<i16>) -> Option<Opcode> {
        let Self { stream, request, input, output } = self;
        let (mut left, mut unsent) = (replies, requests);
        let (mut sent, mut start, mut end) = (0, 0, 0);
        let mut opcode = None;
        poll_fn(|context| {
            loop {
                let mut progress = false;
                if sent == output.len() {
                    sent = 0;
                    output.clear();
                    for id in free.drain(..) {
                        if unsent > 0 {
                            unsent -= 1;
                            let at = output.len();
                            output.extend_from_slice(request);
                            output[at + 2..at + 4].copy_from_slice(&id.to_be_bytes());
                        }
                    }
                }
                if sent < output.len() {
                    if let Poll::Ready(count) = Pin::new(&mut *stream).poll_write(context, &output[sent..]) {
                        sent += count.expect("written");
                        progress = true;
                    }
                }
                if let Poll::Ready(count) = Pin::new(&mut *stream).poll_read(context, &mut input[end..]) {
                    let count = count.expect("read");
                    assert!(count > 0, "the server closed the connection");
                    end += count;
                    progress = true;
                }
                while let Some((header, length)) = envelope(&input[start..end]) {
                    start += length;
                    opcode = Some(header.opcode);
                    free.push(header.stream);
                    left -= 1;
                }
                input.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                if left == 0 {
                    assert!(sent == output.len() && unsent == 0 && start == end, "a reply to each request");
                    output.clear();
                    return Poll::Ready(opcode);
                }
                if !progress {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

/// Returns the header of a reply, and the length of the whole envelope, if it is complete.
#[must_use]
pub fn envelope(bytes: &[u8]) -> Option<(Header, usize)> {
    let decoded = decode_header(bytes.get(..HEADER_BYTES)?, Some(Version::V4), Direction::Response, &Limits::DEFAULT);
    let Decoded::Done { value: header, .. } = decoded.expect("a header") else {
        unreachable!("the header is complete")
    };
    let length = HEADER_BYTES + header.length_bytes as usize;
    (bytes.len() >= length).then_some((header, length))
}
