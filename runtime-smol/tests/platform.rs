//! smol as the client sees it, where no test of the client leads.

use core::time::Duration;
use poolhouse_smol::Smol;
use poolhouse_smol::poolhouse_core::Instant;
use poolhouse_smol::poolhouse_core::client::Platform;
use smol::future::FutureExt;
use std::net::UdpSocket;

async fn timely<T>(work: impl Future<Output = T>) -> T {
    let limit = async {
        smol::Timer::after(Duration::from_secs(30)).await;
        panic!("the test hangs");
    };
    work.or(limit).await
}

#[test]
fn datagrams_are_exchanged_with_the_peer_and_nobody_else() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(peer) = UdpSocket::bind(any) else {
            // A machine without IPv6.
            continue;
        };
        let stranger = UdpSocket::bind(any).expect("a second socket");
        smol::block_on(timely(async {
            let socket = Smol.connect_udp(peer.local_addr().expect("bound")).await.expect("a socket");
            assert_eq!(Smol.send_udp(&socket, b"question").await.expect("sent"), 8);
            let mut buffer = [0; 16];
            let (length, from) = peer.recv_from(&mut buffer).expect("received");
            assert_eq!(buffer.get(..length), Some(b"question".as_slice()));
            stranger.send_to(b"forged", from).expect("sent");
            peer.send_to(b"a long answer", from).expect("sent");
            let mut short = [0; 6];
            assert_eq!(Smol.receive_udp(&socket, &mut short).await.expect("received"), 6);
            assert_eq!(&short, b"a long");
        }));
    }
}

#[test]
fn timers_never_ring_early_and_the_last_instant_never_comes() {
    smol::block_on(timely(async {
        let at = Smol.now().saturating_add(Duration::from_millis(20));
        Smol.sleep_until(at).await;
        assert!(Smol.now() >= at);
        let never = async {
            Smol.sleep_until(Instant::MAX).await;
            panic!("the end of time");
        };
        Smol.sleep_until(Smol.now().saturating_add(Duration::from_millis(1))).or(never).await;
    }));
}

#[test]
fn addresses_of_the_machine_itself_are_resolved_with_the_port() {
    let addresses = smol::block_on(timely(Smol.resolve("localhost", 27_018))).expect("every machine has one");
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 27_018), "{addresses:?}");
    assert!(!addresses.is_empty());
}
