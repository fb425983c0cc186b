use super::*;
use crate::resolver::tests::timers::Hasty;
use crate::{ClientOptions, Subscribers};
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::Waker;
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reply is there at once, each time.
#[test]
fn empty_batch_leaves_time_for_other_tasks() {
    let options = ClientOptions::new("a");
    let client =
        Client::with_platform(Hasty::default(), options, Subscribers::default()).expect("the options are right");
    let wakes = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let mut next = Box::pin(client.core().next_server());
    let Poll::Ready(Some(server)) = next.as_mut().poll(&mut context) else { panic!("the server of the options") };
    let reply = bson::doc! { "cursor": { "id": 55_i64, "ns": "db.c", "nextBatch": [] }, "ok": 1 };
    let reply = reply.to_vec().expect("a document");
    let fetch: Fetch = Box::pin(core::future::ready((SessionState::default(), Ok(reply))));
    let origin = Origin { client: client.clone(), server, database: "db".to_owned(), namespace: "db.c".to_owned() };
    let mut batches = Batches {
        origin: Arc::new(origin),
        id: 55,
        reply: Vec::new(),
        rest: 0..0,
        session: SessionState::default(),
        options: CursorOptions::new(),
        timeout: None,
        fetch: Some(fetch),
    };
    assert!(batches.poll_document(&mut context).is_pending());
    assert!(batches.fetch.is_none(), "the next batch is not requested in the same poll");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}
