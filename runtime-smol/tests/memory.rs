//! The memory that connections keep after a large reply. It is measured on a complete client with
//! its tasks, sockets on loopback, and a server that pads its hello reply.

extern crate alloc;

use alloc::sync::Arc;
use core::cell::Cell;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicIsize, Ordering};
use core::time::Duration;
use poolhouse_allocator::Counting;
use poolhouse_smol::poolhouse_uri::Compressor;
use poolhouse_smol::{Client, ClientOptions, ServerMonitoringMode};
use poolhouse_tests::fake::{Algorithm, compressed};
use poolhouse_tests::patience::{PATIENCE, eventually, refused, run};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: Counting = Counting(note);

static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// Counts the bytes that all threads hold, except the threads of servers.
fn note(taken: usize, given: usize) {
    // In a thread that is ending, the thread-local value may be destroyed already.
    if !IS_SERVER.try_with(Cell::get).unwrap_or(false) {
        // A block may be moved when it grows: then both exist.
        let held = HELD.fetch_add(taken.cast_signed(), Ordering::Relaxed) + taken.cast_signed();
        MOST.fetch_max(held, Ordering::Relaxed);
        HELD.fetch_sub(given.cast_signed(), Ordering::Relaxed);
    }
}

/// Serializes the tests that measure the process.
static TURN: Mutex<()> = Mutex::new(());

/// The replies of a server to hello.
#[derive(Clone, Copy)]
struct Hello {
    /// Bytes of padding on the first connection, which is the monitor's.
    monitors_pad: usize,
    /// Bytes of padding on the other connections, which are the pool's.
    pool_pad: usize,
    /// The compression of the reply on the pool's connections.
    algorithm: Option<Algorithm>,
}

/// Starts a standalone server that replies to each request with its hello reply. Its threads end
/// with their connections or with the process.
fn hostile_server(hello: Hello) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        IS_SERVER.set(true);
        let frames = Arc::new([frame(hello.monitors_pad, None), frame(hello.pool_pad, hello.algorithm)]);
        for (place, stream) in listener.incoming().flatten().enumerate() {
            let frames = Arc::clone(&frames);
            std::thread::spawn(move || {
                IS_SERVER.set(true);
                // An error means that the client has closed the connection.
                let _ = greet(stream, &frames[place.min(1)]);
            });
        }
    });
    address
}

fn greet(mut stream: TcpStream, (frame, response_to_at): &(Vec<u8>, usize)) -> std::io::Result<()> {
    loop {
        let mut request = vec![0; 4];
        stream.read_exact(&mut request)?;
        let length = u32::from_le_bytes([request[0], request[1], request[2], request[3]]) as usize;
        request.resize(length, 0);
        stream.read_exact(&mut request[4..])?;
        stream.write_all(&frame[..*response_to_at])?;
        stream.write_all(&request[4..8])?;
        stream.write_all(&frame[response_to_at + 4..])?;
    }
}

/// A reply to hello, and the offset in it at which the id of the request must be written.
fn frame(pad: usize, algorithm: Option<Algorithm>) -> (Vec<u8>, usize) {
    let reply = bson::doc! {
        "ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "minWireVersion": 0, "compression": ["zlib", "snappy", "zstd"],
        "padding": "x".repeat(pad),
    };
    let body = reply.to_vec().expect("a document");
    let length = i32::try_from(16 + 4 + 1 + body.len()).expect("below 2 GiB");
    let mut message = Vec::new();
    for number in [length, 1, 0, 2013, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(&body);
    (algorithm.map_or_else(|| message.clone(), |algorithm| compressed(algorithm, &message)), 8)
}

fn options(address: SocketAddr, compressor: Option<Compressor>) -> ClientOptions {
    let mut options = ClientOptions::new(address.to_string()).compressors(compressor);
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    // Only the first check runs, and those that selections request.
    options.monitor.heartbeat_frequency = Duration::from_secs(600);
    options
}

fn client(address: SocketAddr, compressor: Option<Compressor>, connections: u32) -> Client {
    let mut options = options(address, compressor);
    options.pool.min_pool_size = connections;
    Client::with_options(options).expect("the options are right")
}

/// Starts the threads of the executor and the reactor before the measurement, so it does not
/// include them.
async fn begin() {
    let client = client(hostile_server(Hello { monitors_pad: 0, pool_pad: 0, algorithm: None }), None, 1);
    client.warm_up(PATIENCE).await.expect("a connection");
    client.close().await;
}

/// No compressor, and each compressor of this build.
fn each() -> Vec<(Option<Compressor>, Option<Algorithm>)> {
    let mut each = vec![(None, None)];
    if cfg!(feature = "compression") {
        each.push((Some(Compressor::Zlib), Some(Algorithm::Zlib)));
        each.push((Some(Compressor::Snappy), Some(Algorithm::Snappy)));
    }
    if cfg!(feature = "zstd") {
        each.push((Some(Compressor::Zstd), Some(Algorithm::Zstd)));
    }
    each
}

const CONNECTIONS: u32 = 20;
/// The limit for twenty new connections, including the memory that a compressor keeps for
/// decompression.
const IDLE_BYTES_MAX: isize = 2 * 1024 * 1024;

/// The sum over all connections. Without a compressor it is below the size of one such reply.
#[test]
fn idle_connections_release_large_buffers() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    run(async {
        begin().await;
        for (compressor, algorithm) in each() {
            let server = hostile_server(Hello { monitors_pad: 0, pool_pad: 900_000, algorithm });
            let before = HELD.load(Ordering::Relaxed);
            let client = client(server, compressor, CONNECTIONS);
            client.warm_up(PATIENCE).await.expect("twenty connections");
            let snapshot = client.servers()[0].pool;
            assert_eq!(snapshot.counts.available, CONNECTIONS);
            let kept = HELD.load(Ordering::Relaxed) - before;
            let limit = if compressor.is_none() { 900_000 } else { IDLE_BYTES_MAX };
            assert!(kept < limit, "{compressor:?}: {kept} bytes are kept");
            client.close().await;
        }
    });
}

#[test]
fn monitors_release_large_replies_at_once() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    run(async {
        begin().await;
        let server = hostile_server(Hello { monitors_pad: 900_000, pool_pad: 0, algorithm: None });
        let before = HELD.load(Ordering::Relaxed);
        let client = client(server, None, 0);
        client.warm_up(PATIENCE).await.expect("a connection");
        // This includes the reply on the connection that measures round trips. At most one reply
        // exists at a time.
        eventually("the monitor keeps less than one reply", || HELD.load(Ordering::Relaxed) - before < 450_000).await;
        client.close().await;
    });
}

/// A reply of 40 MB, compressed or not, takes no more memory at any time than a message of 1 MiB.
#[test]
fn a_message_before_authentication_is_limited_to_1_mib() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    run(async {
        begin().await;
        for (compressor, algorithm) in each() {
            let server = hostile_server(Hello { monitors_pad: 0, pool_pad: 12_000_000, algorithm });
            let before = HELD.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            let client = client(server, compressor, CONNECTIONS);
            let error = refused(client.warm_up(PATIENCE).await);
            assert!(error.to_string().contains("protocol"), "{compressor:?}: {error}");
            let most = MOST.load(Ordering::Relaxed) - before;
            assert!(most < 8_000_000, "{compressor:?}: {most} bytes were held");
            client.close().await;
        }
    });
}
