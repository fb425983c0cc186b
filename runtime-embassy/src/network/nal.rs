//! Networks with the traits of embedded-nal-async.

use super::Network;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use embassy_time::{Duration, with_timeout};
use embedded_io_async::{Error as _, ErrorKind, ErrorType, Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use poolhouse_core::Cause;

/// The time in which a connection sends its last bytes before it is dropped.
const LINGER: Duration = Duration::from_secs(1);

/// A stack or a modem with the traits of embedded-nal-async, in a static.
///
/// It needs as many connections as the client has sockets ([`Layout::SOCKETS`](crate::Layout::SOCKETS)).
/// Dropping one of its connections must close it; meanwhile another may be opened in its place. `SOCKET` of
/// [`Sizes`](crate::Sizes) can be 0, because its sockets have their own memory.
///
/// ```no_run
/// use embedded_nal_async::{Dns, TcpConnect};
/// use poolhouse_embassy::{Buffers, Client, Config, Nal, Resources, Runner, SetupError, Sizes};
///
/// type Db<M> = Sizes<1, 2, 4, 1024, 512, 0, (), 1, Nal<M>>;
///
/// fn start<M: TcpConnect + Dns + 'static>(
///     modem: &'static M,
///     resources: &'static mut Resources<Db<M>>,
///     buffers: &'static mut Buffers<Db<M>>,
///     config: &'static Config,
/// ) -> Result<(Client<Db<M>>, Runner<Db<M>>), SetupError> {
///     Client::new(resources, buffers, Nal(modem), config)
/// }
/// ```
pub struct Nal<T: 'static>(pub &'static T);

impl<T> Clone for Nal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Nal<T> {}

impl<T> fmt::Debug for Nal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nal(..)")
    }
}

/// The socket of a [`Nal`]: a connection, or none.
pub struct NalSocket<T: TcpConnect + 'static> {
    connection: Option<T::Connection<'static>>,
    /// Whether all bytes that were written are flushed.
    is_flushed: bool,
}

impl<T: TcpConnect + Dns + 'static> Network for Nal<T> {
    type Socket = NalSocket<T>;
    type Address = IpAddr;

    fn socket(&self, _receive: &'static mut [u8], _send: &'static mut [u8]) -> NalSocket<T> {
        NalSocket { connection: None, is_flushed: true }
    }

    async fn resolve(&self, host: &str) -> Result<IpAddr, Cause> {
        match host.parse() {
            Ok(address) => Ok(address),
            Err(_) => self.0.get_host_by_name(host, AddrType::Either).await.map_err(|_| Cause::Dns),
        }
    }

    async fn connect(&self, socket: &mut NalSocket<T>, address: IpAddr, port: u16) -> Result<(), Cause> {
        let connection = self.0.connect(SocketAddr::new(address, port)).await;
        socket.connection = Some(connection.map_err(|_| Cause::Network)?);
        socket.is_flushed = true;
        Ok(())
    }

    /// Closes at once, unless bytes are left to flush: these wait for `close`, which is not called after the
    /// runner was dropped.
    fn begin_close(socket: &mut NalSocket<T>) {
        if socket.is_flushed {
            socket.connection = None;
        }
    }

    async fn close(socket: &mut NalSocket<T>) {
        if let Some(mut connection) = socket.connection.take() {
            let _ = with_timeout(LINGER, connection.flush()).await;
        }
    }
}

impl<T: TcpConnect> ErrorType for NalSocket<T> {
    type Error = ErrorKind;
}

impl<T: TcpConnect> Read for NalSocket<T> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        let connection = self.connection.as_mut().ok_or(ErrorKind::NotConnected)?;
        connection.read(buf).await.map_err(|error| error.kind())
    }
}

impl<T: TcpConnect> Write for NalSocket<T> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        let connection = self.connection.as_mut().ok_or(ErrorKind::NotConnected)?;
        self.is_flushed = false;
        connection.write(buf).await.map_err(|error| error.kind())
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        let connection = self.connection.as_mut().ok_or(ErrorKind::NotConnected)?;
        connection.flush().await.map_err(|error| error.kind())?;
        self.is_flushed = true;
        Ok(())
    }
}

impl<T: TcpConnect> fmt::Debug for NalSocket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.connection.is_some() { "NalSocket(connected)" } else { "NalSocket" })
    }
}
