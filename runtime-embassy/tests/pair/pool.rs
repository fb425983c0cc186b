//! The generic pool in fixed memory, over sockets of the network stack.

use super::net::{Net, run};
use super::support::eventually;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use embassy_net::tcp::ConnectError;
use embedded_io_async::{Read as _, Write as _};
use poolhouse_embassy::pool::{Config, Manager, Options, Pool, PoolError, TcpBuffers, TcpConnection, TcpSockets, open};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

/// Opens connections to a server that repeats what it receives.
struct Echo<const SOCKETS: usize> {
    sockets: &'static TcpSockets<SOCKETS>,
    address: SocketAddr,
}

impl<const SOCKETS: usize> Manager for Echo<SOCKETS> {
    type Connection = TcpConnection;
    type Error = ConnectError;

    async fn connect(&self) -> Result<TcpConnection, ConnectError> {
        let SocketAddr::V4(address) = self.address else { return Err(ConnectError::NoRoute) };
        self.sockets.connect(address).await
    }

    async fn check(&self, connection: &mut TcpConnection) -> Result<(), ConnectError> {
        if connection.is_quiet() { Ok(()) } else { Err(ConnectError::ConnectionReset) }
    }
}

type Echoes<const SOCKETS: usize> = Pool<Echo<SOCKETS>, 2, 3>;

/// A server that repeats what it receives.
#[derive(Clone, Default)]
struct Server {
    /// Whether each connection that has ended was ended by FIN.
    ends: Arc<Mutex<Vec<bool>>>,
    /// Whether connections that clients have ended stay open on this side.
    lingers: bool,
    /// Whether one more byte follows the first echo, and then the end.
    surplus: bool,
}

impl Server {
    fn start(&self, net: &Net) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = self.clone();
        std::thread::spawn(move || {
            let mut lingering = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                lingering.extend(server.lingers.then(|| stream.try_clone().expect("a handle")));
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        net.open_for(address, 8);
        address
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut bytes = [0; 64];
        let is_orderly = loop {
            match stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(count) if self.surplus => {
                    let _ = stream.write_all(&bytes[..=count]);
                    break true;
                }
                Ok(count) if stream.write_all(&bytes[..count]).is_ok() => {}
                Ok(_) | Err(_) => break false,
            }
        };
        self.ends.lock().expect("not poisoned").push(is_orderly);
    }

    fn ends(&self) -> Vec<bool> {
        self.ends.lock().expect("not poisoned").clone()
    }
}

fn pool<const SOCKETS: usize>(net: &Net, server: &Server, options: Options) -> &'static Echoes<SOCKETS> {
    let config: Config = options.validate().expect("valid options");
    let buffers: &'static mut TcpBuffers<SOCKETS, 512, 512> = Box::leak(Box::default());
    let sockets = Box::leak(Box::new(TcpSockets::new(net.stack, buffers)));
    let manager = Echo { sockets, address: server.start(net) };
    let pool: &'static Echoes<SOCKETS> = Box::leak(Box::new(open(manager, config, &())));
    for _ in 0..options.max_connecting {
        net.spawn(Pool::run_worker(pool));
    }
    net.spawn(Pool::run_clock(pool));
    pool
}

async fn say<const SOCKETS: usize>(pool: &Echoes<SOCKETS>, word: &[u8]) -> Result<(), PoolError<ConnectError>> {
    let mut socket = pool.get().await?;
    socket.write_all(word).await.expect("a connection");
    let mut echo = [0; 8];
    socket.read_exact(&mut echo[..word.len()]).await.expect("an echo");
    assert_eq!(&echo[..word.len()], word);
    Ok(())
}

#[test]
fn tasks_share_the_connections_of_a_pool_in_fixed_memory() {
    run(async |net| {
        let pool = pool::<2>(net, &Server::default(), Options { max_size: 8, ..Options::DEFAULT });
        let tasks: Vec<_> = (0..3_u8)
            .map(|task| {
                net.spawn_task(async move {
                    for turn in 0..10 {
                        say(pool, &[task, turn]).await.expect("a connection");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let counts = pool.snapshot().counts;
        assert!((1..=2).contains(&counts.available), "the capacity bounds max_size: {counts:?}");
        assert_eq!((counts.in_use, counts.waiting), (0, 0));
        pool.close();
        pool.drained().await;
    });
}

#[test]
fn full_table_of_waiters_is_an_error_and_waiters_have_a_limit() {
    run(async |net| {
        let limit = Duration::from_secs(20);
        let pool = pool::<2>(net, &Server::default(), Options { wait_timeout: Some(limit), ..Options::DEFAULT });
        let held = [pool.get().await.expect("a connection"), pool.get().await.expect("a connection")];
        let waiting: Vec<_> = (0..3).map(|_| net.spawn_task(async move { pool.get().await.map(drop) })).collect();
        net.idle().await;
        assert_eq!(pool.snapshot().counts.waiting, 3);
        assert!(matches!(pool.get().await, Err(PoolError::Busy { waiting: 3 })));
        net.skip(limit).await;
        for task in waiting {
            assert!(matches!(task.await, Err(PoolError::WaitTimeout { .. })));
        }
        drop(held);
        say(pool, b"again").await.expect("a connection");
        pool.close();
    });
}

#[test]
fn dropped_connections_end_by_fin_and_their_sockets_are_used_again() {
    run(async |net| {
        let server = Server::default();
        let pool = pool::<2>(net, &server, Options::DEFAULT);
        for ended in 1..=5 {
            say(pool, b"once").await.expect("a connection");
            // Closes the available connection, which no task uses.
            pool.clear();
            eventually("the server sees the end", || server.ends().len() == ended).await;
        }
        assert_eq!(server.ends(), [true; 5]);
        pool.close();
    });
}

#[test]
fn drained_pool_and_its_sockets_have_no_open_connection() {
    run(async |net| {
        let server = Server::default();
        let pool = pool::<2>(net, &server, Options::DEFAULT);
        drop([pool.get().await.expect("a connection"), pool.get().await.expect("a connection")]);
        pool.close();
        pool.drained().await;
        pool.manager().sockets.closed().await;
        assert_eq!(server.ends(), [true; 2]);
    });
}

#[test]
fn connection_with_a_surplus_byte_or_an_end_is_not_quiet() {
    run(async |net| {
        let server = Server { surplus: true, ..Server::default() };
        let pool = pool::<1>(net, &server, Options::DEFAULT);
        let mut connection = pool.get().await.expect("a connection");
        assert!(connection.is_quiet());
        connection.write_all(b"two").await.expect("a connection");
        connection.read_exact(&mut [0; 3]).await.expect("an echo");
        eventually("the surplus byte arrives", || !connection.is_quiet()).await;
        connection.read_exact(&mut [0; 1]).await.expect("the surplus byte");
        eventually("the end arrives", || !connection.is_quiet()).await;
        assert!(!connection.can_recv());
        pool.close();
    });
}

/// Returns a pool with one socket, whose connection was dropped and whose peer has not ended it.
async fn with_ended_connection(net: &Net) -> &'static Echoes<1> {
    let server = Server { lingers: true, ..Server::default() };
    let pool = pool::<1>(net, &server, Options::DEFAULT);
    say(pool, b"once").await.expect("a connection");
    pool.clear();
    eventually("the server sees the end", || server.ends().len() == 1).await;
    pool
}

/// The time for the end of a connection begins with its drop, not with each attempt to connect.
#[test]
fn attempts_that_are_dropped_do_not_postpone_the_reset() {
    run(async |net| {
        let pool = with_ended_connection(net).await;
        // The clock includes the host's time, so most of the second is left for a busy machine.
        for _ in 0..3 {
            let limit = embassy_time::Duration::from_millis(100);
            let attempt = net.spawn_task(embassy_time::with_timeout(limit, pool.manager().connect()));
            net.idle().await;
            net.jump(Duration::from_millis(100)).await;
            assert!(attempt.await.is_err(), "the peer has not ended the first connection");
        }
        net.jump(Duration::from_millis(750)).await;
        // Without a further pause.
        net.spawn_task(pool.manager().connect()).await.expect("a connection");
        pool.close();
    });
}

#[test]
fn socket_whose_peer_stays_open_is_used_again_after_a_reset() {
    run(async |net| {
        let pool = with_ended_connection(net).await;
        let again = net.spawn_task(say(pool, b"again"));
        net.idle().await;
        assert_eq!(pool.snapshot().counts.pending, 1, "the worker waits for the end of the first connection");
        net.jump(Duration::from_millis(1_500)).await;
        again.await.expect("a connection");
        pool.close();
    });
}

#[test]
fn connection_without_a_socket_is_an_error() {
    run(async |net| {
        let pool = pool::<1>(net, &Server::default(), Options::DEFAULT);
        let held = pool.get().await.expect("a connection");
        assert!(matches!(pool.get().await, Err(PoolError::Connect(ConnectError::InvalidState))));
        drop(held);
        say(pool, b"again").await.expect("a connection");
        pool.close();
    });
}
