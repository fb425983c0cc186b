//! The generic pool on smol, with sockets, and with a server that is ended and started again.

extern crate alloc;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::ClosedReason;
use poolhouse_smol::{Event, EventRef, Manager, Notice, Pool, PoolError, PoolEvent, PoolState};
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::net::{TcpListener, TcpStream};
use std::io;

/// A server that adds one to each number, until it is dropped.
struct Adder {
    address: SocketAddr,
    open: Arc<AtomicU32>,
    _task: smol::Task<()>,
}

struct Open(Arc<AtomicU32>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Adder {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let (address, open) = (listener.local_addr().expect("an address"), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&open);
        let task = smol::spawn(async move {
            let mut served = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let open = Open(Arc::clone(&count));
                served.push(smol::spawn(async move {
                    let _open = open;
                    let mut number = [0; 8];
                    while stream.read_exact(&mut number).await.is_ok() {
                        let sum = u64::from_be_bytes(number).wrapping_add(1);
                        if stream.write_all(&sum.to_be_bytes()).await.is_err() {
                            return;
                        }
                    }
                }));
            }
        });
        Self { address, open, _task: task }
    }
}

struct Client(SocketAddr);

struct Connection {
    stream: TcpStream,
    is_waiting: bool,
}

impl Connection {
    async fn add(&mut self, number: u64) -> io::Result<u64> {
        self.is_waiting = true;
        self.stream.write_all(&number.to_be_bytes()).await?;
        let mut sum = [0; 8];
        self.stream.read_exact(&mut sum).await?;
        self.is_waiting = false;
        Ok(u64::from_be_bytes(sum))
    }
}

impl Manager for Client {
    type Connection = Connection;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<Connection> {
        Ok(Connection { stream: TcpStream::connect(self.0).await?, is_waiting: false })
    }

    async fn check(&self, connection: &mut Connection) -> io::Result<()> {
        if connection.add(1).await? == 2 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn is_broken(&self, connection: &Connection) -> bool {
        connection.is_waiting
    }
}

/// Every check-out has one outcome and its own replies while the server is ended and started again,
/// and while operations are dropped in the middle.
#[test]
fn server_restart_under_load_loses_no_operation() {
    smol::block_on(async {
        let server = Adder::start("127.0.0.1:0").await;
        let address = server.address.to_string();
        let pool = Pool::builder(Client(server.address))
            .max_size(8)
            .max_backoff(Duration::from_millis(100))
            .build()
            .expect("valid options");
        let (served, failed, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let work = |task: u64| {
            let (pool, served, failed, stop) = (pool.clone(), &served, &failed, &stop);
            async move {
                let mut number = task << 32;
                while stop.load(Ordering::Relaxed) == 0 {
                    number += 1;
                    let sum = async { pool.get().await.ok()?.add(number).await.ok() };
                    // One in seven operations is dropped after its first polls.
                    let sum =
                        if number.is_multiple_of(7) { smol::future::poll_once(sum).await.flatten() } else { sum.await };
                    match sum {
                        Some(sum) => {
                            assert_eq!(sum, number + 1, "the reply is that of this request");
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        None => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                    smol::future::yield_now().await;
                }
            }
        };
        let restarts = async {
            let mut server = Some(server);
            for _ in 0..3 {
                let target = served.load(Ordering::Relaxed) + 500;
                while served.load(Ordering::Relaxed) < target {
                    smol::future::yield_now().await;
                }
                drop(server.take());
                let target = failed.load(Ordering::Relaxed) + 20;
                while failed.load(Ordering::Relaxed) < target {
                    smol::future::yield_now().await;
                }
                server = Some(Adder::start(&address).await);
            }
            let target = served.load(Ordering::Relaxed) + 500;
            while served.load(Ordering::Relaxed) < target {
                smol::future::yield_now().await;
            }
            stop.store(1, Ordering::Relaxed);
            server
        };
        let mut all = Vec::new();
        for task in 1..=32 {
            all.push(work(task));
        }
        let all = async {
            let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
            smol::future::poll_fn(|context| {
                all.retain_mut(|one| Future::poll(one.as_mut(), context).is_pending());
                if all.is_empty() { core::task::Poll::Ready(()) } else { core::task::Poll::Pending }
            })
            .await;
        };
        let (server, ()) = smol::future::zip(restarts, all).await;
        let counts = pool.status().counts;
        assert_eq!((counts.in_use, counts.waiting), (0, 0), "every connection was returned");
        pool.close().await;
        let open = server.as_ref().map(|server| Arc::clone(&server.open)).expect("it runs");
        while open.load(Ordering::Relaxed) > 0 {
            smol::future::yield_now().await;
        }
    });
}

#[test]
fn refused_connection_contains_the_reason_of_the_system() {
    smol::block_on(async {
        let server = Adder::start("127.0.0.1:0").await;
        let address = server.address;
        drop(server);
        let pool = Pool::builder(Client(address)).build().expect("valid options");
        let error = pool.get().await.err().expect("nothing listens");
        let PoolError::Connect(reason) = &error else { panic!("{error:?}") };
        assert_eq!(reason.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), format!("could not connect: {reason}"));
        let source = core::error::Error::source(&error).expect("the manager's error");
        assert!(source.is::<Arc<io::Error>>() || source.is::<io::Error>());
    });
}

#[test]
fn dropped_pool_closes_its_connections_and_close_waits_for_those_in_use() {
    smol::block_on(async {
        let server = Adder::start("127.0.0.1:0").await;
        let pool = Pool::builder(Client(server.address)).build().expect("valid options");
        let held = pool.get().await.expect("a connection");
        let closing = smol::spawn({
            let pool = pool.clone();
            async move { pool.close().await }
        });
        while !pool.is_closed() {
            smol::future::yield_now().await;
        }
        assert!(!closing.is_finished(), "a connection is in use");
        drop(held);
        closing.await;
        assert_eq!(pool.status().state, PoolState::Closed);

        let pool = Pool::builder(Client(server.address)).build().expect("valid options");
        let mut events = pool.subscribe();
        drop(pool.get().await.expect("a connection"));
        drop(pool);
        let mut is_closed = false;
        while let Some(notice) = events.next().await {
            let Notice::Event { event: Event::Pool(event), .. } = notice else { panic!("{notice:?}") };
            is_closed |= matches!(event, PoolEvent::PoolClosed { .. });
        }
        assert!(is_closed, "the subscription ends with the pool");
    });
}

/// Connections without sockets, which are numbered.
struct Numbers {
    next: AtomicU32,
    survives_panic: bool,
}

impl Manager for Numbers {
    type Connection = u32;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<u32> {
        Ok(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn survives_panic(&self, _: &u32) -> bool {
        self.survives_panic
    }
}

#[test]
fn connection_whose_owner_panics_is_closed_unless_the_manager_keeps_it() {
    smol::block_on(async {
        for survives_panic in [false, true] {
            let numbers = Numbers { next: AtomicU32::new(0), survives_panic };
            let pool = Pool::builder(numbers).max_size(1).build().expect("valid options");
            let mut closes =
                pool.subscribe_where(|event| matches!(event, EventRef::Pool(PoolEvent::ConnectionClosed { .. })));
            let held = pool.get().await.expect("a connection");
            let waiting = smol::spawn({
                let pool = pool.clone();
                async move { pool.get().await.map(|number| *number) }
            });
            while pool.status().counts.waiting == 0 {
                smol::future::yield_now().await;
            }
            let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
                let _held = held;
                panic!("as the test wants it");
            }));
            assert!(panicked.is_err());
            let closed = closes.try_next().map(|notice| {
                let Notice::Event { event: Event::Pool(event), .. } = notice else { panic!("{notice:?}") };
                let PoolEvent::ConnectionClosed { reason, cause, .. } = event else { panic!("{event:?}") };
                (reason, cause)
            });
            let expected = Some((ClosedReason::Error, Some(Cause::Panicked))).filter(|_| !survives_panic);
            assert_eq!(closed, expected);
            assert_eq!(waiting.await.expect("a connection"), u32::from(!survives_panic));
            pool.close().await;
        }
    });
}

#[test]
fn options_are_checked_before_a_task_is_started() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let error = Pool::builder(Client(address)).max_size(1).min_size(2).build().expect_err("a contradiction");
    assert_eq!(error.to_string(), "min_size is 2, but must be at most max_size");
}
