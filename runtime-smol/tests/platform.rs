//! smol as the client uses it, beyond the contract.

use poolhouse_smol::Smol;
use poolhouse_smol::poolhouse_client::Platform;
use std::net::TcpListener;

#[test]
fn small_writes_are_not_delayed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = smol::block_on(Smol.connect_tcp(listener.local_addr().expect("bound"))).expect("it listens");
    assert!(stream.get_ref().nodelay().expect("a TCP socket"));
}
