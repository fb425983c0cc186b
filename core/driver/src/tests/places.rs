//! Servers in a fixed number of slots, and tasks that wait for servers in fixed memory.

use super::wide::Bell;
use super::*;
use alloc::sync::Weak;
use poolhouse_core::topology::Fixed as FixedTopology;

/// The maximum number of servers.
const SERVERS: usize = 4;

/// The runtime of the other tests, in fixed memory.
#[derive(Clone)]
struct Narrow {
    bench: Bench,
    /// The slots of servers. A server occupies its slot while a handle of it exists.
    places: Arc<Mutex<Vec<Weak<Server<Self>>>>>,
}

impl BaseRuntime for Narrow {
    type Lock<T> = Mutex<T>;
    type Memory = Fixed<1, 8, 1>;
    type Text = String;
    type Events = Subscribers;

    of_the_bench!(bench);
}

impl Runtime for Narrow {
    type Stream = Stream;
    type Buffer = Page;
    type Topology = FixedTopology<SERVERS, 16, 24, 512>;
    type ServerLock = Mutex<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream, ConnectError> {
        self.bench.connect(address, deadline).await
    }

    fn buffers(&self, stream: &Stream) -> Result<(Page, Page), Full> {
        self.bench.buffers(stream)
    }

    fn has_slot(&self) -> bool {
        self.places.lock().unwrap().iter().filter(|place| place.strong_count() > 0).count() < SERVERS
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        let server = server.share(|state| Ok(Mutex::new(state))).map(Arc::new)?;
        self.places.lock().unwrap().push(Arc::downgrade(&server));
        Ok(server)
    }
}

/// A client core with these servers, without running tasks.
fn narrow(seeds: &[&str]) -> ClientCore<Narrow> {
    let runtime = Narrow { bench: Bench::new(), places: Arc::default() };
    core_for(runtime, TopologyOptions { seeds, ..Default::default() }, |_| ())
}

fn change_seeds(core: &ClientCore<Narrow>, seeds: &[&str]) {
    core.change_seeds(seeds.iter().copied()).expect("there is room");
}

/// Takes the handles of all servers that need tasks.
fn take_all(core: &ClientCore<Narrow>) -> Vec<Arc<Server<Narrow>>> {
    let mut taken = Vec::new();
    while let Poll::Ready(Some(server)) = Arc::new(Bell::default()).poll(&mut Box::pin(core.next_server())) {
        taken.push(server);
    }
    taken
}

fn addresses(servers: &[Arc<Server<Narrow>>]) -> Vec<&str> {
    let mut addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    addresses.sort_unstable();
    addresses
}

/// Slots become free while another server is found: each server gets one of them, and only once.
#[test]
fn waiting_server_and_new_server_are_each_added_once() {
    let core = narrow(&["a", "b", "c", "d"]);
    let held = take_all(&core);
    assert_eq!(held.len(), SERVERS);
    change_seeds(&core, &["a"]);
    // The handles that still exist occupy all slots.
    change_seeds(&core, &["a", "e"]);
    assert!(take_all(&core).is_empty(), "there is no place for it");
    drop(held);
    change_seeds(&core, &["a", "e", "f"]);
    assert_eq!(addresses(&take_all(&core)), ["e:27017", "f:27017"]);
    core.request_check();
    assert!(take_all(&core).is_empty(), "each is given once");
}

/// A task that has released a removed server requests the next one, which may be the server that
/// had no slot.
#[test]
fn waiting_server_gets_the_slot_of_a_removed_one_when_its_tasks_have_ended() {
    let core = narrow(&["a", "b", "c", "d"]);
    let held = take_all(&core);
    change_seeds(&core, &["a"]);
    change_seeds(&core, &["a", "e"]);
    let (bell, mut next) = (Arc::new(Bell::default()), Box::pin(core.next_server()));
    assert!(bell.poll(&mut next).is_pending());
    drop(held);
    assert_eq!(addresses(&take_all(&core)), ["e:27017"]);
    assert_eq!(bell.rings(), 1, "any may take it");
}

/// Waiters that are dropped and wakers that are replaced release their slots.
#[test]
fn dropped_wait_for_servers_frees_its_slot() {
    let core = narrow(&["a"]);
    assert_eq!(take_all(&core).len(), 1);
    let bells: Vec<_> = (0..=SERVERS).map(|_| Arc::new(Bell::default())).collect();
    for bell in &bells {
        assert!(bell.poll(&mut Box::pin(core.next_server())).is_pending());
    }
    let mut next = Box::pin(core.next_server());
    for bell in &bells {
        assert!(bell.poll(&mut next).is_pending());
    }
    change_seeds(&core, &["a", "b"]);
    let rings: Vec<_> = bells.iter().map(|bell| bell.rings()).collect();
    assert_eq!(rings, [0, 0, 0, 0, 1], "whoever polled last is woken, and nobody else");
    drop(next);
    assert!(bells.iter().all(|bell| Arc::strong_count(bell) == 1), "no waker is kept");
}

/// There is no server that it could start. It is never woken, and takes no other waiter's slot.
#[test]
fn wait_for_servers_beyond_the_capacity_is_never_woken() {
    let core = narrow(&["a"]);
    assert_eq!(take_all(&core).len(), 1);
    let bells: Vec<_> = (0..=SERVERS).map(|_| Arc::new(Bell::default())).collect();
    let mut waiting: Vec<_> = bells.iter().map(|_| Box::pin(core.next_server())).collect();
    for (bell, next) in bells.iter().zip(&mut waiting) {
        assert!(bell.poll(next).is_pending());
    }
    change_seeds(&core, &["a", "b"]);
    let rings: Vec<_> = bells.iter().map(|bell| bell.rings()).collect();
    assert_eq!(rings, [1, 1, 1, 1, 0], "those who have a place are");
    assert!(matches!(bells[0].poll(&mut waiting[0]), Poll::Ready(Some(_))));
    drop(waiting.remove(0));
    // A slot is free now for a waiter that polls again.
    assert!(bells[SERVERS].poll(&mut waiting[SERVERS - 1]).is_pending());
    change_seeds(&core, &["a", "b", "c"]);
    assert_eq!(bells[SERVERS].rings(), 1);
}

/// Unless a runtime supplies unpredictable random bytes, none are available.
#[cfg(feature = "auth")]
#[test]
fn runtime_without_entropy_cannot_authenticate() {
    use poolhouse_auth::Credential;
    let runtime = Narrow { bench: Bench::new(), places: Arc::default() };
    let written = Arc::clone(&runtime.bench.written);
    let (core, server) = core_of(runtime, |config| {
        config.login = Some(Login::new(Credential::new("ada", "secret")).unwrap());
    });
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let mut establishing = Box::pin(core.keep_establishing(&server));
    assert!(poll(&mut waiting).is_pending() && poll(&mut establishing).is_pending());
    let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("it has no nonce") };
    let failed = CheckOutError::EstablishFailed { cause: Cause::Resources, overloaded: false };
    assert_eq!(error, OperationError::check_out_of("a:27017", failed));
    assert_eq!(written.load(Ordering::Relaxed), 0);
}

/// A client has one pool number for each server that its topology can ever add.
#[test]
fn pools_of_two_clients_never_have_the_same_number() {
    let pool = |core: &ClientCore<Bench>| {
        done(core.next_server()).expect("a server").state.with(|state| state.driven.pool.id())
    };
    let core = |client| {
        let seeds = TopologyOptions { seeds: &["a"], ..Default::default() };
        core_for(Bench::new(), seeds, |config| config.client = client)
    };
    let (first, second) = (core(0), core(1));
    let mut seen = vec![pool(&first), pool(&second)];
    for made in [1 << 16, 1 << 24, u32::MAX] {
        first.state.with(|state| state.next_pool = made);
        first.change_seeds([alloc::format!("b{made}").as_str()].into_iter()).expect("there is room");
        seen.push(pool(&first));
    }
    for (index, id) in seen.iter().enumerate() {
        assert!(!seen[..index].contains(id), "{seen:?}");
    }
}
