//! async-std as the client uses it, beyond the contract.

use poolhouse_async_std::AsyncStd;
use poolhouse_async_std::poolhouse_client::Platform;
use std::net::TcpListener;

#[test]
fn small_writes_are_not_delayed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let connecting = AsyncStd.connect_tcp(listener.local_addr().expect("bound"));
    let stream = async_std::task::block_on(connecting).expect("it listens");
    assert!(stream.nodelay().expect("a TCP socket"));
}
