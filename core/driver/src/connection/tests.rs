use super::super::tests::{Bench, Page, Stream};
use super::*;
use alloc::vec;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use poolhouse_wire::message::{Outgoing, encode_command};

async fn exchange(connection: &mut Connection<Bench>, payload: &[u8]) {
    send(connection, payload).await;
    connection.receive().await.unwrap();
}

async fn send(connection: &mut Connection<Bench>, payload: &[u8]) {
    connection
        .send(|sink, id, limits| {
            encode_command(sink, Outgoing::request(id), limits, "db", |body| body.binary("x", 0, payload).map(drop))
                .map(|_| Flags::NONE)
        })
        .await
        .unwrap();
}

#[test]
fn memory_for_a_reply_grows_with_its_bytes_and_not_with_the_length_that_it_claims() {
    let bench = Bench::new();
    let mut stream = Stream::of(&bench);
    let claimed: i32 = 48_000_000;
    let mut begin = claimed.to_le_bytes().to_vec();
    begin.extend([1, 0, 0, 0, 1, 0, 0, 0, 0xdd, 7, 0, 0]);
    begin.resize(50_000, 0);
    stream.precede(&begin);
    let mut connection = Connection::<Bench>::new(stream, Page::of(&bench), Page::of(&bench));
    connection.limits = Limits::DEFAULT;
    {
        let mut talk = pin!(async {
            send(&mut connection, &[]).await;
            connection.receive().await
        });
        let outcome = talk.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(outcome.is_pending(), "the rest of the reply is due");
    }
    assert!(connection.received >= begin.len());
    assert!(connection.input.capacity() <= 3 * begin.len(), "{}", connection.input.capacity());
}

/// The memory of a large request is released, and a small request allocates nothing.
#[test]
fn buffer_of_a_large_request_shrinks_when_the_connection_is_idle() {
    let bench = Bench::new();
    let mut connection = Connection::<Bench>::new(Stream::of(&bench), Page::of(&bench), Page::of(&bench));
    let large = vec![0; KEEP_BYTES_MAX + 1];
    let mut talk = pin!(async {
        exchange(&mut connection, &large).await;
        assert!(connection.output.capacity() > KEEP_BYTES_MAX);
        connection.rest();
        assert_eq!(connection.output.capacity(), 0);
        exchange(&mut connection, &large[..1000]).await;
        let kept = connection.output.capacity();
        connection.rest();
        assert_eq!(connection.output.capacity(), kept);
    });
    assert_eq!(talk.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
}
