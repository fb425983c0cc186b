//! The generic pool in fixed memory, over sockets of the network stack.

use super::net::{Net, run};
use core::net::SocketAddr;
use embassy_net::Stack;
use embassy_net::tcp::{ConnectError, TcpSocket};
use embedded_io_async::{Read as _, Write as _};
use poolhouse_embassy::pool::{Config, Manager, Options, Pool, PoolError, open};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

/// Opens connections to a server that repeats what it receives.
struct Echo {
    stack: Stack<'static>,
    address: SocketAddr,
}

impl Manager for Echo {
    type Connection = TcpSocket<'static>;
    type Error = ConnectError;

    async fn connect(&self) -> Result<TcpSocket<'static>, ConnectError> {
        let buffers: (&'static mut [u8; 512], &'static mut [u8; 512]) =
            (Box::leak(Box::new([0; 512])), Box::leak(Box::new([0; 512])));
        let mut socket = TcpSocket::new(self.stack, buffers.0, buffers.1);
        let SocketAddr::V4(address) = self.address else { return Err(ConnectError::NoRoute) };
        socket.connect(address).await?;
        Ok(socket)
    }

    async fn check(&self, socket: &mut TcpSocket<'static>) -> Result<(), ConnectError> {
        if socket.may_send() && socket.may_recv() { Ok(()) } else { Err(ConnectError::ConnectionReset) }
    }
}

type Echoes = Pool<Echo, 2, 3>;

fn echo(net: &Net) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    net.open_for(address, 8);
    address
}

fn pool(net: &Net, options: Options) -> &'static Echoes {
    let config: Config = options.validate().expect("valid options");
    let manager = Echo { stack: net.stack, address: echo(net) };
    let pool: &'static Echoes = Box::leak(Box::new(open(manager, config, &())));
    for _ in 0..options.max_connecting {
        net.spawn(Pool::run_worker(pool));
    }
    net.spawn(Pool::run_clock(pool));
    pool
}

async fn say(pool: &Echoes, word: &[u8]) -> Result<(), PoolError<ConnectError>> {
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
        let pool = pool(net, Options { max_size: 8, ..Options::DEFAULT });
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
        let limit = core::time::Duration::from_millis(50);
        let pool = pool(net, Options { wait_timeout: Some(limit), ..Options::DEFAULT });
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
