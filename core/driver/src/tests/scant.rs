//! Memory that is exhausted: by replies, by connections and by waiters. The defaults apply where a
//! runtime supplies nothing.

use super::*;
use poolhouse_core::pool::Memory;
use poolhouse_core::storage::Store;

/// Memory for three elements of the pool's tables, and for `N` of the driver's tables.
struct Few<T, const N: usize>(heapless::Vec<T, 3>);

impl<T, const N: usize> Store<T> for Few<T, N> {
    fn empty() -> Self {
        Self(heapless::Vec::new())
    }

    fn slots(&self) -> &[T] {
        &self.0
    }

    fn slots_mut(&mut self) -> &mut [T] {
        &mut self.0
    }

    fn try_push(&mut self, slot: T) -> Result<(), Full> {
        if self.0.len() < self.limit() as usize { self.0.push(slot).map_err(|_| Full) } else { Err(Full) }
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn reserve(&mut self, _count: u32) -> Result<(), Full> {
        Ok(())
    }

    fn limit(&self) -> u32 {
        let name = core::any::type_name::<T>();
        let is_of_the_pool = ["::storage::", "::time::Instant"].iter().any(|path| name.contains(path));
        if is_of_the_pool { 3 } else { u32::try_from(N).expect("few") }
    }
}

struct ScantMemory;

impl Memory for ScantMemory {
    type PerConn<T> = Few<T, 2>;
    type PerWaiter<T> = Few<T, 1>;
    type PerService<T> = Few<T, 0>;
}

/// A buffer that cannot grow.
struct Slab {
    bytes: Vec<u8>,
    limit: usize,
}

impl Sink for Slab {
    fn written(&self) -> &[u8] {
        &self.bytes
    }

    fn written_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(Full);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

impl Buffer for Slab {
    fn resize(&mut self, len: usize) -> Result<(), Full> {
        if len > self.limit {
            return Err(Full);
        }
        self.bytes.resize(len, 0);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.limit
    }

    fn limit(&self) -> usize {
        self.limit
    }
}

/// The runtime of the other tests in such memory. It does not override whether its sockets are
/// private.
#[derive(Clone)]
struct Scant {
    bench: Bench,
    /// The maximum length of a received message.
    input_bytes: usize,
    /// How many more servers have room.
    rooms: Arc<AtomicUsize>,
}

impl BaseRuntime for Scant {
    type Lock<T> = Mutex<T>;
    type Memory = ScantMemory;
    type Text = heapless::String<16>;
    type Events = Subscribers;

    of_the_bench!(bench);
}

impl Runtime for Scant {
    type Stream = Stream;
    type Buffer = Slab;
    type Topology = topology::OnHeap;
    type ServerLock = Mutex<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream, ConnectError> {
        self.bench.connect(address, deadline).await
    }

    fn buffers(&self, _: &Stream) -> Result<(Slab, Slab), Full> {
        let slab = |limit| Slab { bytes: Vec::new(), limit };
        Ok((slab(self.input_bytes), slab(4096)))
    }

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        self.bench.secret_entropy()
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        let take = |rooms: usize| rooms.checked_sub(1);
        self.rooms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Full)?;
        server.share(|state| Ok(Mutex::new(state))).map(Arc::new)
    }
}

impl Scant {
    fn new(input_bytes: usize, rooms: usize) -> Self {
        Self { bench: Bench::new(), input_bytes, rooms: Arc::new(rooms.into()) }
    }
}

type Place = (Bench, Arc<ClientCore<Scant>>, Arc<Server<Scant>>);

fn scant(input_bytes: usize, change: impl FnOnce(&mut CoreConfig)) -> Place {
    let runtime = Scant::new(input_bytes, 1);
    let bench = runtime.bench.clone();
    let (core, server) = core_of(runtime, change);
    (bench, core, server)
}

/// Returns the result of a check-out after a worker was polled.
fn check_out<'h>((_, core, server): &'h Place) -> Result<Guard<'h, Scant>, OperationError> {
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    if let Poll::Ready(outcome) = poll(&mut waiting) {
        return outcome;
    }
    let mut establishing = Box::pin(core.keep_establishing(server));
    assert!(poll(&mut establishing).is_pending());
    match poll(&mut waiting) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

fn failed(cause: Cause) -> OperationError {
    OperationError::check_out_of("a:27017", CheckOutError::EstablishFailed { cause, overloaded: false })
}

fn four(place: &Place) -> [u32; 4] {
    let PoolCounts { pending, available, in_use, waiting } = place.2.pool_snapshot().counts;
    [pending, available, in_use, waiting]
}

#[test]
fn hello_that_no_buffer_holds_is_an_error_of_resources() {
    let place = scant(64, |_| ());
    assert_eq!(check_out(&place).map(drop), Err(failed(Cause::Resources)));
    assert_eq!(four(&place), [0; 4], "its place is free");
    let place = scant(4096, |_| ());
    let mut guard = check_out(&place).expect("there is room for it");
    done(guard.run_command("db", |body| body.int32("ping", 1).map(drop))).expect("its reply");
    assert_eq!(guard.established().map(|known| known.max_wire_version), Some(21));
    // A buffer that cannot grow is not shrunk either, unless the runtime implements it.
    let mut slab = Slab { bytes: Vec::new(), limit: 4 };
    assert_eq!((slab.append(b"abcd"), slab.resize(5)), (Ok(()), Err(Full)));
    slab.shrink(0);
    assert_eq!((slab.written(), slab.capacity()), (&b"abcd"[..], 4));
}

#[test]
fn connection_without_a_free_slot_fails_alone() {
    let place = scant(4096, |_| ());
    let guards = [(); 2].map(|()| check_out(&place).expect("a place for it"));
    assert_eq!(check_out(&place).map(drop), Err(failed(Cause::Resources)));
    assert_eq!(four(&place), [0, 0, 2, 0]);
    drop(guards);
    assert_eq!(four(&place), [0, 2, 0, 0]);
    check_out(&place).expect("one is available");
}

/// Two tasks wait until the pool is filled. One of them has been cancelled by then.
#[test]
fn warm_up_beyond_the_capacity_is_an_error() {
    let place = scant(4096, |_| ());
    let (_, core, server) = &place;
    let mut early = Box::pin(core.warm_up_server(server, Some(3), None));
    let mut late = Box::pin(core.warm_up_server(server, Some(3), None));
    assert!(poll(&mut early).is_pending() && poll(&mut late).is_pending());
    drop(early);
    let mut establishing = Box::pin(core.keep_establishing(server));
    assert!(poll(&mut establishing).is_pending());
    assert_eq!(poll(&mut late), Poll::Ready(Err(failed(Cause::Resources))));
    assert_eq!(four(&place), [0, 2, 0, 0], "as many as there is room for");
}

#[test]
fn check_out_without_a_free_waiter_slot_is_busy() {
    let place = scant(4096, |_| ());
    let (_, core, server) = &place;
    let mut first = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    assert!(poll(&mut first).is_pending());
    let before = four(&place);
    let mut second = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    let Poll::Ready(Err(error)) = poll(&mut second) else { panic!("there is no place") };
    assert_eq!(error, OperationError::check_out_of("a:27017", CheckOutError::Busy { waiting: 1 }));
    assert_eq!(four(&place)[3], before[3], "the other one still waits");
    let mut establishing = Box::pin(core.keep_establishing(server));
    assert!(poll(&mut establishing).is_pending());
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
}

/// A selection also needs a slot for waiters.
#[test]
fn selection_without_a_free_slot_is_busy() {
    let (_, core, _) = &scant(4096, |_| ());
    let mut first = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut first).is_pending(), "nobody has asked the server yet");
    let mut second = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(matches!(poll(&mut second), Poll::Ready(Err(OperationError::Busy))));
    drop(first);
    let mut third = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut third).is_pending(), "the place of the first is free");
}

/// The server gets its slot when a task polls `next_server` and a slot is free.
#[test]
fn server_without_a_free_slot_waits_for_one() {
    let runtime = Scant::new(4096, 1);
    let rooms = Arc::clone(&runtime.rooms);
    let core = core_for(runtime, TopologyOptions { seeds: &["a", "b"], ..Default::default() }, |_| ());
    let first = done(core.next_server()).expect("there is a place for one");
    assert!(poll(&mut Box::pin(core.next_server())).is_pending());
    rooms.store(1, Ordering::Relaxed);
    let second = done(core.next_server()).expect("there is one more");
    let mut addresses = [first.address(), second.address()];
    addresses.sort_unstable();
    assert_eq!(addresses, ["a:27017", "b:27017"]);
    assert!(poll(&mut Box::pin(core.next_server())).is_pending(), "each is given once");
}

/// The other servers are not affected.
#[test]
fn server_whose_address_exceeds_the_memory_is_not_added() {
    let seeds = ["a-name-that-is-too-long.example", "b"];
    let core = core_for(Scant::new(4096, 2), TopologyOptions { seeds: &seeds, ..Default::default() }, |_| ());
    assert_eq!(done(core.next_server()).expect("the other one").address(), "b:27017");
    assert!(poll(&mut Box::pin(core.next_server())).is_pending());
    let mut seen = 0;
    core.for_each_server(|server| {
        assert_eq!(server.address, "b:27017");
        seen += 1;
    });
    assert_eq!(seen, 1);
}

/// Unless a runtime states otherwise, a socket is not private.
#[cfg(feature = "auth")]
#[test]
fn plain_password_is_not_sent_unless_the_stream_is_private() {
    use poolhouse_auth::{AuthError, Credential, Mechanism};
    let login = Login::new(Credential::new("ada", "secret").mechanism(Mechanism::Plain)).unwrap();
    let place = scant(4096, |config| config.login = Some(login));
    let Err(OperationError::Authentication(failure)) = check_out(&place).map(drop) else { panic!("refused") };
    assert_eq!(failure.error, AuthError::PlainWithoutTls);
    assert_eq!(place.0.written.load(Ordering::Relaxed), 0, "nothing was sent");
}
