//! How often a check-out that waits takes the lock of its server, and which wakers it leaves.

use super::wide::Bell;
use super::workers::guard;
use super::*;
use crate::driven::Drive as _;
use core::cell::Cell;

std::thread_local! {
    /// How often this thread has taken the lock of a server.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

struct Counted<T>(Mutex<T>);

impl<T> Locked<T> for Counted<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        TAKEN.set(TAKEN.get() + 1);
        self.0.with(f)
    }
}

/// The runtime of the other tests, with such locks of servers.
#[derive(Clone)]
struct Counting(Bench);

impl BaseRuntime for Counting {
    type Lock<T> = Mutex<T>;
    type Memory = Fixed<1, 8, 1>;
    type Text = String;
    type Events = Subscribers;

    of_the_bench!(0);
}

impl Runtime for Counting {
    type Stream = Stream;
    type Buffer = Page;
    type Topology = topology::OnHeap;
    type ServerLock = Counted<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream, ConnectError> {
        self.0.connect(address, deadline).await
    }

    fn buffers(&self, stream: &Stream) -> Result<(Page, Page), Full> {
        self.0.buffers(stream)
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        server.share(|state| Ok(Counted(Mutex::new(state)))).map(Arc::new)
    }
}

#[test]
fn check_out_takes_the_lock_once_if_the_last_one_waited() {
    let (core, server) = core_of(Counting(Bench::new()), |_| ());
    let begin = || Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let mut first = begin();
    assert!(poll(&mut first).is_pending());
    let mut establishing = Box::pin(core.keep_establishing(&server));
    assert!(poll(&mut establishing).is_pending());
    drop(establishing);
    let Poll::Ready(Ok(held)) = poll(&mut first) else { panic!("established") };
    drop(held);
    let Poll::Ready(Ok(held)) = poll(&mut begin()) else { panic!("one is available") };
    let mut waiting = [begin(), begin()];
    let taken = waiting.each_mut().map(|one| {
        let before = TAKEN.get();
        assert!(poll(one).is_pending());
        TAKEN.get() - before
    });
    assert_eq!(taken, [3, 1]);
    drop((waiting, held));
}

#[test]
fn check_out_leaves_no_waker_whether_or_not_the_last_one_waited() {
    for waited in [false, true] {
        let (bench, core, server) = open();
        let bell = Arc::new(Bell::default());
        let begin = || Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        let hint = server.last_waited();
        let held = guard(&core, &server);
        hint.set(waited);
        let mut waiting = begin();
        assert!(bell.poll(&mut waiting).is_pending());
        assert!(hint.get());
        assert_eq!(Arc::strong_count(&bell), 2, "one waker is registered");
        drop(held);
        assert_eq!((bell.rings(), Arc::strong_count(&bell)), (1, 1));
        let Poll::Ready(Ok(held)) = bell.poll(&mut waiting) else { panic!("it was granted the connection") };
        drop(held);
        hint.set(waited);
        assert!(matches!(bell.poll(&mut begin()), Poll::Ready(Ok(_))));
        assert!(!hint.get());
        server.close(bench.now());
        server.settle();
        hint.set(waited);
        assert!(matches!(bell.poll(&mut begin()), Poll::Ready(Err(_))));
        assert_eq!(Arc::strong_count(&bell), 1, "a waker is left");
    }
}
