//! Lookups that end when the test says so.

use super::*;
use alloc::task::Wake;
use alloc::vec;
use core::pin::pin;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The lookups that were begun, by host, and the results of those that have ended.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<Name>>>);

struct Name {
    host: &'static str,
    found: Option<Found>,
    panics: bool,
    waker: Option<Waker>,
}

impl Names {
    fn begin(&self, host: &'static str) -> Work {
        let names = self.clone();
        // The closure may be called for a lookup that is then joined.
        let mut place = None;
        Box::pin(poll_fn(move |context| {
            let mut all = lock(&names.0);
            let place = *place.get_or_insert_with(|| {
                all.push(Name { host, found: None, panics: false, waker: None });
                all.len() - 1
            });
            let name = &mut all[place];
            assert!(!name.panics, "as the test wants it");
            name.waker = Some(context.waker().clone());
            name.found.take().map_or(Poll::Pending, Poll::Ready)
        }))
    }

    fn begun(&self) -> Vec<&'static str> {
        lock(&self.0).iter().map(|name| name.host).collect()
    }

    /// Ends the last lookup of a host.
    fn end(&self, host: &str, end: impl FnOnce(&mut Name)) {
        let waker = {
            let mut all = lock(&self.0);
            let name = all.iter_mut().rfind(|name| name.host == host).expect("it was begun");
            end(name);
            name.waker.take()
        };
        waker.expect("it was polled").wake();
    }

    fn finds(&self, host: &str, address: &str) {
        let found = vec![address.parse().expect("an address")];
        self.end(host, |name| name.found = Some(Ok(found)));
    }
}

/// The number of times that a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Rig {
    lookups: Lookups,
    names: Names,
    now_s: AtomicUsize,
}

type Attempt<'r> = Pin<Box<dyn Future<Output = Found> + 'r>>;

impl Rig {
    fn now(&self) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_secs(self.now_s.load(Ordering::Relaxed) as u64))
    }

    /// An attempt that was polled once, and its result if it has one.
    fn attempt(&self, host: &'static str) -> (Attempt<'_>, Option<Found>) {
        let finding = self.lookups.find(host, || self.now(), move || self.names.begin(host));
        let mut finding: Attempt<'_> = Box::pin(finding);
        let found = poll(&mut finding);
        (finding, found)
    }

    fn waits(&self, host: &'static str) -> Attempt<'_> {
        let (attempt, found) = self.attempt(host);
        assert_eq!(found, None, "{host}");
        attempt
    }

    fn outstanding(&self) -> usize {
        lock(&self.lookups.outstanding).len()
    }
}

fn poll(attempt: &mut Attempt<'_>) -> Option<Found> {
    match attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => Some(found),
        Poll::Pending => None,
    }
}

fn only(address: &str) -> Option<Found> {
    Some(Ok(vec![address.parse().expect("an address")]))
}

#[test]
fn lookup_that_hangs_is_shared_by_later_attempts() {
    let rig = Rig::default();
    for _ in 0..100 {
        drop(rig.waits("a"));
    }
    let mut attempts = [rig.waits("a"), rig.waits("a")];
    assert_eq!(rig.names.begun(), ["a"]);
    rig.names.finds("a", "10.0.0.1:7");
    for attempt in &mut attempts {
        assert_eq!(poll(attempt), only("10.0.0.1:7"));
    }
    drop(attempts);
    assert_eq!(rig.outstanding(), 0);
    let _again = rig.waits("a");
    assert_eq!(rig.names.begun(), ["a", "a"], "nothing is cached");
}

#[test]
fn fifth_host_waits_until_a_lookup_ends() {
    for is_abandoned in [false, true] {
        let rig = Rig::default();
        let mut attempts: Vec<_> = ["a", "b", "c", "d"].map(|host| rig.waits(host)).into();
        let mut fifth = rig.waits("e");
        assert_eq!(rig.names.begun(), ["a", "b", "c", "d"]);
        if is_abandoned {
            drop(attempts.remove(0));
        }
        rig.names.finds("a", "10.0.0.1:7");
        if !is_abandoned {
            assert_eq!(poll(&mut attempts[0]), only("10.0.0.1:7"));
        }
        assert_eq!(poll(&mut fifth), None);
        assert_eq!(rig.names.begun(), ["a", "b", "c", "d", "e"], "abandoned: {is_abandoned}");
        rig.names.finds("e", "10.0.0.5:7");
        assert_eq!(poll(&mut fifth), only("10.0.0.5:7"));
    }
}

#[test]
fn attempt_that_gives_up_leaves_the_lookup_to_the_others() {
    let rig = Rig::default();
    let first = rig.waits("a");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut second = pin!(rig.lookups.find("a", || rig.now(), || rig.names.begin("a")));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let before = woken.0.load(Ordering::Relaxed);
    drop(first);
    rig.names.finds("a", "10.0.0.1:7");
    assert!(woken.0.load(Ordering::Relaxed) > before);
    let found = second.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(found, Poll::Ready(only("10.0.0.1:7").expect("an address")));
}

#[test]
fn panic_of_a_lookup_is_its_error() {
    let rig = Rig::default();
    let mut attempts = [rig.waits("a"), rig.waits("a")];
    rig.names.end("a", |name| name.panics = true);
    for attempt in &mut attempts {
        let error = poll(attempt).expect("an end").expect_err("it panicked");
        assert_eq!((error.cause, alloc::format!("{error}").contains("panicked")), (Cause::Dns, true));
    }
    drop(attempts);
    let _again = rig.waits("a");
    assert_eq!(rig.names.begun(), ["a", "a"]);
}

#[test]
fn result_that_came_too_late_serves_the_next_attempt_for_a_short_time() {
    let failed = Err(ConnectError::from(Cause::Dns));
    let cases = [
        (29, only("10.0.0.1:7").expect("an address"), true),
        (30, only("10.0.0.1:7").expect("an address"), false),
        (0, failed, false),
    ];
    for (age_s, found, is_used) in cases {
        let rig = Rig::default();
        drop(rig.waits("a"));
        rig.names.end("a", |name| name.found = Some(found.clone()));
        rig.now_s.store(age_s, Ordering::Relaxed);
        let (_attempt, result) = rig.attempt("a");
        assert_eq!(result, Some(found).filter(|_| is_used), "{age_s} s");
        assert_eq!(rig.names.begun().len(), if is_used { 1 } else { 2 });
    }
}

#[test]
fn closing_discards_the_lookups_that_nobody_waits_for() {
    let rig = Rig::default();
    let mut attempt = rig.waits("a");
    drop(rig.waits("b"));
    rig.lookups.discard_abandoned();
    assert_eq!(rig.outstanding(), 1);
    rig.names.finds("a", "10.0.0.1:7");
    assert_eq!(poll(&mut attempt), only("10.0.0.1:7"));
}

#[test]
fn attempt_that_joins_a_lookup_while_another_one_polls_it_is_woken_afterwards() {
    type Joined = Pin<Box<dyn Future<Output = Found> + Send>>;
    let find = |lookups: &Arc<Lookups>, host: &'static str, begin: fn() -> Work| -> Joined {
        let lookups = Arc::clone(lookups);
        Box::pin(async move { lookups.find(host, || Instant::ORIGIN, begin).await })
    };
    let hangs: fn() -> Work = || Box::pin(core::future::pending());

    let (lookups, woken) = (Arc::new(Lookups::default()), Arc::new(Woken::default()));
    let joined = Arc::new(Mutex::new(None::<(Joined, usize)>));
    let mut first = Box::pin({
        let (shared, woken, joined) = (Arc::clone(&lookups), Arc::clone(&woken), Arc::clone(&joined));
        let of_first = Arc::clone(&lookups);
        async move {
            let begin = || -> Work {
                let (shared, woken, joined) = (Arc::clone(&shared), Arc::clone(&woken), Arc::clone(&joined));
                let mut polls = 0;
                Box::pin(poll_fn(move |context| {
                    polls += 1;
                    if polls == 2 {
                        let mut attempt = find(&shared, "a", hangs);
                        let waker = Waker::from(Arc::clone(&woken));
                        let mut poll = || assert!(attempt.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                        poll();
                        context.waker().wake_by_ref();
                        poll();
                        poll();
                        *lock(&joined) = Some((attempt, woken.0.load(Ordering::Relaxed)));
                    }
                    Poll::Pending
                }))
            };
            of_first.find("a", || Instant::ORIGIN, begin).await
        }
    });
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    drop(first);
    assert!(find(&lookups, "b", hangs).as_mut().poll(&mut context).is_pending());
    let (_joined, before) = lock(&joined).take().expect("it was polled again");
    assert!(woken.0.load(Ordering::Relaxed) > before);
}
