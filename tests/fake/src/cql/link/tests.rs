use super::*;
use crate::cql::CqlServerOptions;
use std::net::TcpListener;
use std::sync::mpsc;

/// More than the buffers of a loopback connection hold.
const MORE_THAN_BUFFERED_BYTES: usize = 64 << 20;

#[test]
fn write_after_a_reset_fails_and_does_not_block() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let _client = TcpStream::connect(address).expect("it listens");
    let (stream, _) = listener.accept().expect("connected");
    let shared = Arc::new(Shared::new(&CqlServerOptions::default(), address));
    let link = Arc::new(Link::new(1, stream, shared));
    link.cut(Cut::Reset);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(link.send(&vec![0; MORE_THAN_BUFFERED_BYTES], 0, false)));
    let sent = receiver.recv_timeout(Duration::from_secs(10)).expect("the write fails instead of blocking");
    assert_eq!(sent.expect_err("the connection has ended").kind(), io::ErrorKind::BrokenPipe);
}
