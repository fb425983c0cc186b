//! TLS on a socket.

use alloc::sync::Arc;
use core::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use async_io::Async;
use rustls::ServerConfig;

use crate::mongo::FakeOptions;
use crate::tls::{ServerTls, Side};

/// The configuration of a server.
pub(crate) type TlsConfig = Arc<ServerConfig>;

/// Returns the configuration that the options of a server ask for.
pub(crate) fn config(options: &FakeOptions) -> io::Result<Option<TlsConfig>> {
    options.tls.as_ref().map(ServerTls::config).transpose()
}

/// A socket and its TLS session. The first read performs the handshake.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    pub(crate) socket: Async<TcpStream>,
    /// Never borrowed across an await.
    side: RefCell<Box<Side>>,
}

impl TlsSocket {
    pub(crate) fn new(socket: Async<TcpStream>, config: &TlsConfig) -> io::Result<Self> {
        Ok(Self { socket, side: RefCell::new(Box::new(Side::new(config)?)) })
    }

    /// Reads decrypted bytes. Cancel-safe: no bytes are lost if the future is dropped.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.side.borrow_mut().read(buffer);
            // On an error this sends the TLS alert.
            let sent = self.send().await;
            if let Some(count) = read? {
                return Ok(count);
            }
            sent?;
            let mut piece = Side::piece();
            let count = self.socket.read_with(|mut socket| socket.read(&mut piece)).await?;
            self.side.borrow_mut().receive(&piece[..count])?;
        }
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.side.borrow_mut().write(bytes)?;
        self.send().await?;
        Ok(bytes.len())
    }

    async fn send(&self) -> io::Result<()> {
        loop {
            let sent = self.socket.write_with(|mut socket| {
                let mut side = self.side.borrow_mut();
                let output = side.output();
                if output.is_empty() {
                    return Ok(true);
                }
                let count = socket.write(output)?;
                output.drain(..count);
                Ok(false)
            });
            if sent.await? {
                return Ok(());
            }
        }
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        let side = self.side.get_mut();
        if side.end().is_ok() {
            // Best effort: close_notify may not reach the peer.
            let _ = self.socket.get_ref().write(side.output());
        }
    }
}
