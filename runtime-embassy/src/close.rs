//! The end of a TCP connection. Depends on no other module.

use embassy_net::tcp::{State, TcpSocket};
use embassy_time::{Duration, Instant, Timer, with_deadline, with_timeout};

/// The time that a peer has to acknowledge the end of a connection, before the connection is reset.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// The time for which the network stack may delay its last acknowledgement, plus a margin. If the
/// socket is lent again earlier, the acknowledgement is not sent.
const ACKNOWLEDGED: Duration = Duration::from_millis(20);
/// The time for sending a reset. Limited because without a link it is never sent.
const RESET: Duration = Duration::from_millis(200);

/// Closes a socket with notice to its peer: by FIN after all data, or by a reset if the connection has
/// not ended at `until`.
pub(crate) async fn close(socket: &mut TcpSocket<'static>, until: Instant) {
    socket.close();
    let ended = with_deadline(until, async {
        socket.flush().await?;
        // Discards all received data until the peer's end of stream.
        while socket.read_with(|bytes| (bytes.len(), ())).await.is_ok() {}
        Ok::<(), embassy_net::tcp::Error>(())
    });
    let _ = ended.await;
    match socket.state() {
        State::Closed => {}
        State::TimeWait => Timer::after(ACKNOWLEDGED).await,
        State::Listen
        | State::SynSent
        | State::SynReceived
        | State::Established
        | State::FinWait1
        | State::FinWait2
        | State::CloseWait
        | State::Closing
        | State::LastAck => {
            socket.abort();
            let _ = with_timeout(RESET, socket.flush()).await;
        }
    }
}
