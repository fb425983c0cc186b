//! No TLS: without the feature `tls` a server has no configuration for it.

use core::convert::Infallible;
use std::io;
use std::net::TcpStream;

use async_io::Async;

use crate::mongo::FakeOptions;

/// The configuration of a server.
pub(crate) type TlsConfig = Infallible;

pub(crate) fn config(_options: &FakeOptions) -> io::Result<Option<TlsConfig>> {
    Ok(None)
}

/// A socket and its TLS session, of which there is none.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    pub(crate) socket: Async<TcpStream>,
    session: Infallible,
}

impl TlsSocket {
    pub(crate) fn new(_socket: Async<TcpStream>, config: &TlsConfig) -> io::Result<Self> {
        match *config {}
    }

    pub(super) async fn read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.session {}
    }

    pub(super) async fn write(&self, _bytes: &[u8]) -> io::Result<usize> {
        match self.session {}
    }
}
