use super::*;
use alloc::task::Wake;
use core::sync::atomic::AtomicUsize;
use poolhouse_core::pool::{PoolEvent, PoolId};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn publish(subscribers: &Subscribers, number: u32) {
    let event = PoolEvent::PoolReady { pool: PoolId::new(number.into()) };
    if subscribers.kinds() != EventKinds::NONE {
        subscribers.publish(Instant::ORIGIN, EventRef::Pool(&event));
    }
}

fn number(notice: Option<Notice>) -> Option<Result<u64, u64>> {
    notice.map(|notice| match notice {
        Notice::Event { event: Event::Pool(event), .. } => Ok(event.pool().get()),
        Notice::Event { event, .. } => panic!("not published: {event:?}"),
        Notice::Lagged { count } => Err(count),
    })
}

/// The waker of a subscriber, and the number of its wake-ups.
fn reader() -> (Arc<Counter>, Waker) {
    let counter = Arc::new(Counter::default());
    (Arc::clone(&counter), Waker::from(counter))
}

#[test]
fn events_are_read_in_order_by_each_subscriber() {
    let subscribers = Subscribers::default();
    assert!(subscribers.kinds() == EventKinds::NONE);
    let mut all = subscribers.subscribe(EventKinds::ALL, 8, |_| true);
    let wanted = [1, 3];
    let mut odd = subscribers.subscribe(
        EventKinds::ALL,
        8,
        move |event| matches!(event, EventRef::Pool(event) if wanted.contains(&event.pool().get())),
    );
    for each in 1..=3 {
        publish(&subscribers, each);
    }
    assert_eq!([1, 2, 3].map(|_| number(all.try_next())), [Some(Ok(1)), Some(Ok(2)), Some(Ok(3))]);
    assert_eq!([1, 2].map(|_| number(odd.try_next())), [Some(Ok(1)), Some(Ok(3))]);
    assert!(all.try_next().is_none() && odd.try_next().is_none());
    drop(all);
    assert!(subscribers.kinds() != EventKinds::NONE);
    drop(odd);
    assert!(subscribers.kinds() == EventKinds::NONE);
}

#[test]
fn lagging_subscriber_loses_the_newest_events_and_receives_their_number() {
    let subscribers = Subscribers::default();
    // A limit of zero counts as one.
    let mut one = subscribers.subscribe(EventKinds::ALL, 0, |_| true);
    let mut two = subscribers.subscribe(EventKinds::ALL, 2, |_| true);
    for each in 1..=4 {
        publish(&subscribers, each);
    }
    assert_eq!([1, 2, 3].map(|_| number(one.try_next())), [Some(Ok(1)), Some(Err(3)), None]);
    // Until the subscriber has received the loss no event is stored, to keep events in order.
    assert_eq!(number(two.try_next()), Some(Ok(1)));
    publish(&subscribers, 5);
    assert_eq!([1, 2, 3].map(|_| number(two.try_next())), [Some(Ok(2)), Some(Err(3)), None]);
    publish(&subscribers, 6);
    assert_eq!(number(two.try_next()), Some(Ok(6)));
}

/// Publishing happens under the lock of the object that changes; waking does not.
#[test]
fn readers_are_woken_by_delivery_and_not_by_publishing() {
    let subscribers = Subscribers::default();
    let mut some = subscribers.subscribe(EventKinds::ALL, 8, |_| true);
    let mut none = subscribers.subscribe(EventKinds::ALL, 8, |_| false);
    let (woken, waker) = reader();
    let (idle, other) = reader();
    assert!(some.poll_next(&mut Context::from_waker(&waker)).is_pending());
    assert!(none.poll_next(&mut Context::from_waker(&other)).is_pending());
    publish(&subscribers, 1);
    publish(&subscribers, 2);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    subscribers.deliver();
    subscribers.deliver();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(idle.0.load(Ordering::Relaxed), 0);
    assert!(some.poll_next(&mut Context::from_waker(&waker)).is_ready());
    assert!(some.poll_next(&mut Context::from_waker(&waker)).is_ready());
    assert!(some.poll_next(&mut Context::from_waker(&waker)).is_pending());
    publish(&subscribers, 3);
    subscribers.deliver();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

#[test]
fn subscription_ends_after_its_last_event_when_the_client_is_closed_or_dropped() {
    for drops in [false, true] {
        let subscribers = Subscribers::default();
        let mut subscription = subscribers.subscribe(EventKinds::ALL, 8, |_| true);
        let (woken, waker) = reader();
        let mut context = Context::from_waker(&waker);
        assert!(subscription.poll_next(&mut context).is_pending());
        publish(&subscribers, 1);
        if drops {
            drop(subscribers);
        } else {
            subscribers.close();
            publish(&subscribers, 2);
            let mut late = subscribers.subscribe(EventKinds::ALL, 8, |_| true);
            assert!(matches!(late.poll_next(&mut context), Poll::Ready(None)));
            assert!(subscribers.kinds() == EventKinds::NONE);
        }
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(matches!(subscription.poll_next(&mut context), Poll::Ready(Some(_))));
        assert!(matches!(subscription.poll_next(&mut context), Poll::Ready(None)));
        assert!(matches!(subscription.poll_next(&mut context), Poll::Ready(None)));
    }
}

#[test]
fn debug_of_a_subscription_shows_its_backlog() {
    let subscribers = Subscribers::default();
    let subscription = subscribers.subscribe(EventKinds::ALL, 2, |_| true);
    for each in 1..=5 {
        publish(&subscribers, each);
    }
    let shown = alloc::format!("{subscription:?}");
    assert!(shown.contains("Queue { len: 2, lost: 3, .. }") && !shown.contains("PoolReady"), "{shown}");
}

#[test]
fn subscription_receives_only_events_of_its_kinds() {
    let subscribers = Subscribers::default();
    let mut pools = subscribers.subscribe(EventKinds::POOLS, 8, |_| true);
    let mut check_outs = subscribers.subscribe(EventKinds::CHECK_OUTS, 8, |_| true);
    let kinds = |one: EventKinds| [EventKinds::POOLS, EventKinds::CHECK_OUTS].map(|other| one.intersects(other));
    assert_eq!(kinds(subscribers.kinds()), [true, true]);
    let pool = PoolId::new(1);
    for event in [PoolEvent::PoolReady { pool }, PoolEvent::ConnectionCheckOutStarted { pool }] {
        subscribers.publish(Instant::ORIGIN, EventRef::Pool(&event));
    }
    for (subscription, name) in [(&mut pools, "PoolReady"), (&mut check_outs, "ConnectionCheckOutStarted")] {
        let Some(Notice::Event { event, .. }) = subscription.try_next() else { panic!("published") };
        assert_eq!(alloc::format!("{event}"), name);
        assert!(subscription.try_next().is_none());
    }
    drop(check_outs);
    assert_eq!(kinds(subscribers.kinds()), [true, false]);
    drop(pools);
    assert_eq!(subscribers.kinds(), EventKinds::NONE);
}
