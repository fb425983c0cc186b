//! Forwarding and faults of one connection.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;
use std::net::{Shutdown, TcpStream};

use async_io::{Async, Timer};
use futures_lite::{AsyncReadExt, AsyncWriteExt, future};

use super::{Fate, Fault, Shared};
use crate::choices::Choices;
use crate::rng::Rng;

/// Largest number of bytes forwarded at once.
const PIECE_BYTES: usize = 16 * 1024;

/// A socket that is counted while it is open.
pub(super) struct Socket {
    // Closed before the count is decremented.
    stream: Async<TcpStream>,
    _counted: Counted,
}

struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sockets.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Socket {
    pub(super) fn new(stream: Async<TcpStream>, shared: &Arc<Shared>) -> Self {
        shared.sockets.fetch_add(1, Ordering::SeqCst);
        // Fails only on a socket that is already closed; its first read then returns the error.
        let _ = stream.get_ref().set_nodelay(true);
        Self { stream, _counted: Counted(Arc::clone(shared)) }
    }

    /// Makes closing send a reset.
    fn reset_on_close(&self) {
        // Fails only on a socket that is already closed.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// Reads and drops bytes until the peer has closed.
    async fn read_to_end(&self) {
        let mut bytes = vec![0; PIECE_BYTES];
        while let Ok(1..) = (&self.stream).read(&mut bytes).await {}
    }
}

/// The reason why forwarding in one direction ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// A peer has closed, or its connection failed.
    Ended,
    /// The bytes before the fault were forwarded.
    Due,
}

/// Serves a connection to its end.
pub(super) async fn serve(shared: Arc<Shared>, client: Socket) {
    let (fate, upstream, strikes) = {
        let mut state = shared.lock();
        state.counts.accepted += 1;
        (state.assign_fault(shared.pardons.load(Ordering::SeqCst)), state.upstream, state.strike.0)
    };
    let struck = wait_for_strike(&shared, strikes);
    if fate.fault == Some(Fault::Silence) {
        shared.count(Fault::Silence);
        let swallowing = async {
            client.read_to_end().await;
            None
        };
        if let Some(fault) = future::or(swallowing, async { Some(struck.await) }).await {
            strike(&shared, fault, &client, None, fate.seed).await;
        }
        return;
    }
    let server = match Async::<TcpStream>::connect(upstream).await {
        Ok(stream) => Socket::new(stream, &shared),
        Err(_) => {
            shared.lock().counts.unreached += 1;
            client.reset_on_close();
            return;
        }
    };
    if let Some(fault @ (Fault::Delay | Fault::Trickle)) = fate.fault {
        shared.count(fault);
    }
    let carried = async {
        let requests = carry(&shared, &client, &server, fate, fate.requests);
        let replies = carry(&shared, &server, &client, fate, fate.replies);
        match future::or(requests, replies).await {
            Done::Ended => None,
            Done::Due => fate.fault,
        }
    };
    let fault = future::or(carried, async { Some(struck.await) }).await;
    if let Some(fault) = fault {
        strike(&shared, fault, &client, Some(server), fate.seed).await;
    }
}

/// Waits for the next strike that affects open connections; returns its fault.
async fn wait_for_strike(shared: &Shared, mut seen: u64) -> Fault {
    loop {
        let listener = shared.changed.listen();
        let (count, fault) = shared.lock().strike;
        if count != seen && !matches!(fault, Fault::Delay | Fault::Trickle) {
            return fault;
        }
        seen = count;
        listener.await;
    }
}

/// Forwards bytes in one direction, at most `limit` of them unless pardoned.
async fn carry(shared: &Shared, from: &Socket, to: &Socket, fate: Fate, limit: Option<u64>) -> Done {
    let mut left = limit.unwrap_or(u64::MAX);
    let mut bytes = vec![0; PIECE_BYTES];
    loop {
        let is_pardoned = shared.pardons.load(Ordering::SeqCst) != fate.pardons;
        let fault = fate.fault.filter(|_| !is_pardoned);
        if left == 0 && is_pardoned {
            left = u64::MAX;
        } else if left == 0 {
            return Done::Due;
        }
        let room = if fault == Some(Fault::Trickle) { 1 } else { PIECE_BYTES };
        let room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = match (&from.stream).read(&mut bytes[..room]).await {
            Ok(count @ 1..) => count,
            Ok(0) | Err(_) => return Done::Ended,
        };
        if fault == Some(Fault::Delay) {
            Timer::after(fate.delay).await;
        }
        if (&to.stream).write_all(&bytes[..count]).await.is_err() {
            return Done::Ended;
        }
        left -= count as u64;
    }
}

/// Executes a fault. Faults that wait for the client to close return after that.
async fn strike(shared: &Shared, fault: Fault, client: &Socket, server: Option<Socket>, seed: u64) {
    if fault != Fault::Silence || server.is_some() {
        shared.count(fault);
    }
    match fault {
        Fault::Cut | Fault::Delay | Fault::Trickle => {}
        Fault::Reset => client.reset_on_close(),
        Fault::HalfClose => {
            // Fails only on a socket that is already closed.
            let _ = client.stream.get_ref().shutdown(Shutdown::Write);
            drop(server);
            client.read_to_end().await;
        }
        // The server's connection stays open, as that of a client that was disconnected from the
        // network.
        Fault::Stall | Fault::Silence => client.read_to_end().await,
        Fault::Garbage => {
            drop(server);
            if write_garbage(client, seed).await.is_ok() {
                client.read_to_end().await;
            }
        }
    }
}

async fn write_garbage(client: &Socket, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let length = 1 + rng.below(100);
    let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(rng.below(256)).unwrap_or(0)).collect();
    (&client.stream).write_all(&bytes).await
}
