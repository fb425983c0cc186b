//! The thread of a proxy: its listening socket and the tasks of its connections.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use async_executor::LocalExecutor;
use async_io::{Async, Timer};
use futures_lite::future;

use super::carry::{Socket, serve};
use super::{RequestedState, Shared};
use crate::fake::bind;

const BACKLOG: i32 = 1024;
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// The bound socket, listening or not: if it does not listen, connecting is refused.
enum Door {
    Closed(OwnedFd),
    Open(Async<TcpListener>),
}

/// Runs the proxy to its end. `socket` is bound to `address`.
pub(super) fn run(shared: Arc<Shared>, socket: OwnedFd, address: SocketAddr) {
    let executor = LocalExecutor::new();
    async_io::block_on(executor.run(supervise(&executor, &shared, Door::Closed(socket), address)));
}

async fn supervise(executor: &LocalExecutor<'static>, shared: &Arc<Shared>, mut door: Door, address: SocketAddr) {
    loop {
        let listener = shared.changed.listen();
        let (wanted, reached) = {
            let state = shared.lock();
            (state.wanted, matches!(state.reached, Ok(Some(reached)) if reached == state.wanted))
        };
        if wanted == RequestedState::Stopped {
            return;
        }
        if !reached {
            let outcome = change_listening(door, wanted, address);
            let failed = outcome.is_err();
            let reached;
            (door, reached) = match outcome {
                Ok(door) => (door, Ok(Some(wanted))),
                Err(error) => match bind(address) {
                    Ok((socket, _)) => (Door::Closed(socket), Err((error.kind(), error.to_string()))),
                    Err(_) => return,
                },
            };
            shared.lock().reached = reached;
            shared.changed.notify(usize::MAX);
            if failed {
                listener.await;
            }
            continue;
        }
        let accept = async {
            match &door {
                Door::Closed(_) => future::pending().await,
                Door::Open(listener) => Some(listener.accept().await),
            }
        };
        let control = async {
            listener.await;
            None
        };
        match future::or(control, accept).await {
            None => {}
            Some(Ok((stream, _))) => {
                let shared = Arc::clone(shared);
                let client = Socket::new(stream, &shared);
                executor.spawn(serve(shared, client)).detach();
            }
            Some(Err(_)) => {
                Timer::after(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Starts or stops listening.
fn change_listening(door: Door, wanted: RequestedState, address: SocketAddr) -> io::Result<Door> {
    match (door, wanted) {
        (Door::Closed(socket), RequestedState::Listening) => {
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(Door::Open(Async::new(TcpListener::from(socket))?))
        }
        (Door::Open(listener), RequestedState::Refusing) => {
            drop(listener);
            Ok(Door::Closed(bind(address)?.0))
        }
        (door, RequestedState::Listening | RequestedState::Refusing | RequestedState::Stopped) => Ok(door),
    }
}
