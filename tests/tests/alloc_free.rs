//! The warm pool allocates nothing: every command, all events and all polling, with a thousand
//! waiters with mixed deadlines. Compressors hold no more memory than documented.

use allocation_counter::measure;
use core::time::Duration;
use poolhouse_client::log::{LogOptions, LogQueue, Logs};
use poolhouse_client::metrics::PoolMetrics;
use poolhouse_core::control::Control;
use poolhouse_core::monitor::{MonitorAction, MonitorConnKind, MonitorOptions, ServerMonitoringMode};
use poolhouse_core::observe::{EventContext, Tee, Within};
use poolhouse_core::pool::{
    CheckOut, Claim, Clear, EstablishError, Health, Lease, OnHeap, Pool, PoolAction, PoolEvent, PoolId, PoolOptions,
    WaiterId,
};
use poolhouse_core::topology::{self, RoundTrip, Topology, TopologyId, TopologyOptions};
use poolhouse_core::{Cause, Instant, Observer};
use poolhouse_driver::{EventKinds, EventRef, Publish};
use poolhouse_tests::reply::Lists;
use poolhouse_wire::compress::{Compressor, Compressors, Packer, Unpacked};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::{Limits, Matched};

/// The number of allocations of this thread while `act` runs.
fn allocations<R>(act: impl FnOnce() -> R) -> (u64, R) {
    let mut result = None;
    let taken = measure(|| result = Some(act()));
    (taken.count_total, result.expect("it was run"))
}

const WAITERS: u32 = 1_000;
const CONNS: u32 = 10;

/// Counts events, without keeping them.
#[derive(Default)]
struct Tally(u64);

impl Observer<PoolEvent> for Tally {
    fn on_event(&mut self, _now: Instant, _event: &PoolEvent) {
        self.0 += 1;
    }
}

struct WarmPool {
    pool: Pool<OnHeap>,
    now: Instant,
    leases: Vec<Lease>,
    waiters: Vec<WaiterId>,
    tally: Tally,
}

fn options() -> PoolOptions {
    PoolOptions {
        max_pool_size: CONNS,
        max_connecting: 4,
        max_idle_time: Some(Duration::from_secs(3_600)),
        wait_queue_timeout: Some(Duration::from_secs(60)),
        ..PoolOptions::DEFAULT
    }
}

impl WarmPool {
    /// All connections are in use, a thousand waiters have queued once before, and memory has its
    /// final size.
    fn warm() -> Self {
        let pool = Pool::new(Instant::ORIGIN, PoolId::new(1), options().validate().expect("valid"), &mut ());
        let mut rig =
            Self { pool, now: Instant::ORIGIN, leases: Vec::new(), waiters: Vec::new(), tally: Tally::default() };
        rig.leases.reserve(CONNS as usize);
        rig.waiters.reserve(2 * WAITERS as usize);
        rig.pool.ready(rig.now, &mut rig.tally);
        for _ in 0..CONNS {
            rig.queue(None);
            let conn = rig.pool.poll_establish().expect("a connection may be established");
            rig.pool.handle_established(rig.now, conn, &mut rig.tally).expect("pending");
        }
        rig.claim_all();
        assert_eq!(rig.leases.len(), CONNS as usize);
        for _ in 0..2 {
            rig.queue_all();
            rig.cancel_all();
        }
        rig.queue_all();
        rig
    }

    fn tick(&mut self) {
        self.now = self.now.saturating_add(Duration::from_micros(10));
    }

    fn queue(&mut self, deadline: Option<Instant>) {
        self.tick();
        let Ok(CheckOut::Queued(waiter)) = self.pool.check_out(self.now, deadline, &mut self.tally) else {
            panic!("the check-out must wait")
        };
        self.waiters.push(waiter);
    }

    /// Deadlines in no order; some are equal, some waiters have none.
    fn queue_all(&mut self) {
        for number in 0..u64::from(WAITERS) {
            let away = Duration::from_micros(1_000_000 + (number * 7_919) % 997 * 1_000);
            let deadline = (number % 5 != 0).then(|| self.now.saturating_add(away));
            self.queue(deadline);
        }
    }

    fn cancel_all(&mut self) {
        // Every other waiter first, so a cancelled waiter is neither the oldest nor the newest.
        for start in [1, 0] {
            for waiter in self.waiters[start..].iter().step_by(2) {
                self.pool.cancel(self.now, *waiter, &mut self.tally);
            }
        }
        self.waiters.clear();
        while self.pool.poll_action(self.now).is_some() {}
    }

    fn claim_all(&mut self) {
        for waiter in self.waiters.drain(..) {
            if let Claim::Granted(lease) = self.pool.claim(self.now, waiter) {
                self.leases.push(lease);
            }
        }
        while self.pool.poll_action(self.now).is_some() {}
    }
}

/// Checks that `act` allocates nothing, and that it emitted events.
fn allocates_nothing(act: impl FnOnce(&mut WarmPool)) {
    let mut rig = WarmPool::warm();
    let events = rig.tally.0;
    let (count, ()) = allocations(|| act(&mut rig));
    assert_eq!(count, 0, "allocations");
    assert!(rig.tally.0 > events, "no event was emitted");
    rig.pool.assert_invariants();
}

#[test]
fn the_counter_counts_allocations() {
    let (count, list) = allocations(|| core::hint::black_box(vec![1_u8; 100]));
    assert_eq!((count, list.len()), (1, 100));
    let (grown, _) = allocations(|| {
        let mut list = list;
        list.reserve(10_000);
        core::hint::black_box(list)
    });
    assert_eq!(grown, 1);
    let mut cold = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(2), options().validate().expect("valid"), &mut ());
    cold.ready(Instant::ORIGIN, &mut ());
    let (count, queued) = allocations(|| cold.check_out(Instant::ORIGIN, None, &mut ()));
    assert!(queued.is_ok() && count > 0, "the first waiter and connection of a pool need memory: {count}");
}

#[test]
fn creating_a_pool_allocates_nothing() {
    let config = options().validate().expect("valid");
    let (count, pool) = allocations(|| Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(2), config, &mut ()));
    assert_eq!(count, 0);
    pool.assert_invariants();
}

#[test]
fn after_reserve_filling_a_pool_allocates_nothing() {
    let config = options().validate().expect("valid");
    let mut pool = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(2), config, &mut ());
    pool.reserve(CONNS, 0).expect("memory");
    let mut tally = Tally::default();
    let (count, ()) = allocations(|| {
        pool.ready(Instant::ORIGIN, &mut tally);
        pool.set_fill_target(Instant::ORIGIN, 2 * CONNS, &mut tally);
        while let Some(conn) = pool.poll_establish() {
            pool.handle_established(Instant::ORIGIN, conn, &mut tally).expect("pending");
        }
        pool.handle_timeout(Instant::ORIGIN, &mut tally);
    });
    assert_eq!(count, 0, "allocations");
    assert_eq!((pool.counts().available, pool.fill_target()), (CONNS, 0));
    assert!(pool.is_filled(2 * CONNS) && tally.0 > 0);
}

#[test]
fn after_reserve_the_first_waiters_and_connections_allocate_nothing() {
    let config = options().validate().expect("valid");
    let mut pool = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(2), config, &mut ());
    pool.reserve(CONNS, WAITERS).expect("memory");
    let (count, ()) = allocations(|| {
        pool.ready(Instant::ORIGIN, &mut ());
        for number in 0..u64::from(WAITERS) {
            let deadline = Instant::from_nanos(1_000_000 + (number * 7_919) % 997);
            let queued = pool.check_out(Instant::ORIGIN, Some(deadline), &mut ());
            assert!(matches!(queued, Ok(CheckOut::Queued(_))));
        }
        while let Some(action) = pool.poll_action(Instant::ORIGIN) {
            if let PoolAction::Establish(conn) = action {
                pool.handle_established(Instant::ORIGIN, conn, &mut ()).expect("pending");
            }
        }
    });
    assert_eq!((count, pool.counts().in_use), (0, CONNS));
    pool.assert_invariants();
}

#[test]
#[doc(alias = "P48")]
fn check_out_and_check_in_of_an_available_connection_allocate_nothing() {
    allocates_nothing(|rig| {
        rig.cancel_all();
        let lease = rig.leases.pop().expect("one is out");
        rig.pool.check_in(rig.now, lease, Health::Healthy, &mut rig.tally).expect("ours");
        for _ in 0..1_000 {
            rig.tick();
            let Ok(CheckOut::Granted(lease)) = rig.pool.check_out(rig.now, None, &mut rig.tally) else {
                panic!("a connection is available")
            };
            rig.pool.check_in(rig.now, lease, Health::Healthy, &mut rig.tally).expect("ours");
        }
    });
}

#[test]
#[doc(alias = "P48")]
fn handing_over_through_the_queue_and_queueing_again_allocate_nothing() {
    allocates_nothing(|rig| {
        for number in 0..5_000_u64 {
            rig.tick();
            let lease = rig.leases.pop().expect("one is out");
            rig.pool.check_in(rig.now, lease, Health::Healthy, &mut rig.tally).expect("ours");
            let Some(PoolAction::Wake(waiter)) = rig.pool.poll_action(rig.now) else { panic!("one waits") };
            let Claim::Granted(lease) = rig.pool.claim(rig.now, waiter) else { panic!("the waiter was woken") };
            rig.leases.push(lease);
            let away = Duration::from_millis(1_000 + number * 7_919 % 997);
            let deadline = (number % 3 != 0).then(|| rig.now.saturating_add(away));
            let queued = rig.pool.check_out(rig.now, deadline, &mut rig.tally);
            assert!(matches!(queued, Ok(CheckOut::Queued(_))));
            assert!(rig.pool.poll_timeout().is_some());
        }
    });
}

#[test]
fn cancelling_a_thousand_waiters_in_any_order_allocates_nothing() {
    allocates_nothing(WarmPool::cancel_all);
}

#[test]
fn cancelling_unclaimed_grants_allocates_nothing() {
    allocates_nothing(|rig| {
        for place in 0..CONNS as usize {
            let lease = rig.leases.pop().expect("one is out");
            rig.pool.check_in(rig.now, lease, Health::Healthy, &mut rig.tally).expect("ours");
            rig.pool.cancel(rig.now, rig.waiters[place], &mut rig.tally);
        }
    });
}

#[test]
fn timing_out_a_thousand_waiters_one_instant_at_a_time_allocates_nothing() {
    allocates_nothing(|rig| {
        let mut instants = 0;
        while let Some(due) = rig.pool.poll_timeout().filter(|_| rig.pool.counts().waiting > 0) {
            rig.now = due;
            rig.pool.handle_timeout(due, &mut rig.tally);
            instants += 1;
        }
        assert!(instants > 500, "deadlines differ: {instants}");
        rig.claim_all();
    });
}

#[test]
fn a_clear_with_a_thousand_waiters_allocates_nothing() {
    for interrupt_in_use_connections in [false, true] {
        allocates_nothing(|rig| {
            let clear = Clear::All { interrupt_in_use_connections };
            rig.pool.clear(rig.now, clear, Some(Cause::Network), &mut rig.tally).expect("the mode");
            assert_eq!(rig.pool.counts().waiting, 0);
            while rig.pool.poll_action(rig.now).is_some() {}
            rig.pool.ready(rig.now, &mut rig.tally);
        });
    }
}

#[test]
fn replacing_broken_connections_allocates_nothing() {
    allocates_nothing(|rig| {
        for number in 0..1_000_u32 {
            rig.tick();
            let lease = rig.leases.pop().expect("one is out");
            rig.pool.check_in(rig.now, lease, Health::Broken(Cause::Network), &mut rig.tally).expect("ours");
            while let Some(action) = rig.pool.poll_action(rig.now) {
                match action {
                    PoolAction::Establish(conn) if number % 4 == 0 => {
                        let error = EstablishError { cause: Cause::Network, overloaded: true, clear: None };
                        rig.pool.handle_establish_failed(rig.now, conn, error, &mut rig.tally).expect("pending");
                    }
                    PoolAction::Establish(conn) => {
                        rig.pool.handle_established(rig.now, conn, &mut rig.tally).expect("pending");
                    }
                    PoolAction::Wake(waiter) => {
                        if let Claim::Granted(lease) = rig.pool.claim(rig.now, waiter) {
                            rig.leases.push(lease);
                        }
                    }
                    PoolAction::Close(_) | PoolAction::Interrupt(_) => {}
                }
            }
            if rig.leases.is_empty() || rig.pool.counts().waiting < 10 {
                break;
            }
        }
    });
}

#[test]
fn closing_with_a_thousand_waiters_allocates_nothing() {
    allocates_nothing(|rig| {
        rig.pool.close(rig.now, &mut rig.tally);
        for lease in rig.leases.drain(..) {
            rig.pool.check_in(rig.now, lease, Health::Healthy, &mut rig.tally).expect("ours");
        }
        while rig.pool.poll_action(rig.now).is_some() {}
    });
}

/// The lists of a member's reply.
fn members(hosts: &[&str]) -> Lists {
    Lists::new(hosts, &[""; 0], &[""; 0], &[("dc", "ny"), ("use", "reporting")])
}

/// A set of fifty with unchanged answers of all members, including the first hello after each
/// change. Failures, errors of applications, and a former primary that still reports to be primary
/// do not allocate either.
#[test]
fn hello_that_changes_nothing_allocates_nothing() {
    let names: Vec<String> = (0..50).map(|number| format!("member{number}.example.net:27017")).collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let lists = members(&hosts);
    let of = |number: usize| {
        lists.of(HelloReply {
            is_writable_primary: number == 0,
            secondary: number > 0,
            set_name: Some("rs"),
            me: Some(hosts[number]),
            primary: Some(hosts[0]),
            max_wire_version: 21,
            set_version: Some(2),
            ..HelloReply::OK
        })
    };
    let config = TopologyOptions { seeds: &hosts[..1], ..TopologyOptions::default() }.validate().expect("one seed");
    let now = Instant::ORIGIN;
    let mut topology = Topology::<topology::OnHeap>::new(now, TopologyId::new(1), config, &mut ()).expect("room");
    let times = Some(RoundTrip::default());
    for (number, host) in hosts.iter().enumerate() {
        let server = topology.find(host).expect("a member");
        for round in 0..2 {
            let (count, known) = allocations(|| {
                let known = topology.handle_hello(now, server, &of(number), times, &mut ());
                while topology.poll_action().is_some() {}
                known
            });
            assert!(known);
            assert!(round == 0 || count == 0, "{count} allocations for hello {round} of member {number}");
        }
    }
    let primary = topology.find(hosts[0]).expect("a member");
    let stale = HelloReply { is_writable_primary: true, secondary: false, set_version: Some(1), ..of(1) };
    let server = topology.find(hosts[1]).expect("a member");
    for _ in 0..2 {
        topology.handle_hello(now, server, &stale, times, &mut ());
    }
    let (count, ()) = allocations(|| {
        for _ in 0..100 {
            topology.handle_hello(now, server, &stale, times, &mut ());
            topology.handle_failed(now, primary, Cause::Network, &mut ());
            topology.handle_hello(now, primary, &of(0), times, &mut ());
            while topology.poll_action().is_some() {}
        }
    });
    assert_eq!(count, 0);
}

/// The same through the control machine, with its monitors: checks become due, are sent and are
/// answered as before, by polling.
#[test]
fn checks_that_change_nothing_allocate_nothing() {
    let names: Vec<String> = (0..50).map(|number| format!("member{number}.example.net:27017")).collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let config = TopologyOptions { seeds: &hosts, ..TopologyOptions::default() }.validate().expect("fifty seeds");
    let polling = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
    let monitor = polling.validate().expect("in range");
    let mut now = Instant::ORIGIN;
    let mut control =
        Control::<topology::OnHeap>::new(now, TopologyId::new(1), config, monitor, &mut ()).expect("room");
    let servers: Vec<_> = hosts.iter().map(|host| control.topology().find(host).expect("a member")).collect();
    let lists = members(&hosts);
    let mut actions = 0;
    let mut round = |control: &mut Control<topology::OnHeap>, now: Instant| {
        let mut answered = 0;
        for (number, server) in servers.iter().enumerate() {
            while let Some(action) = control.poll_conn(now, *server, MonitorConnKind::Check) {
                let conn = match action {
                    MonitorAction::Dial(conn) => {
                        control.handle_dialed(now, *server, conn, &mut ()).expect("it is dialed");
                        continue;
                    }
                    MonitorAction::SendHello { conn, .. } => conn,
                    MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_) => {
                        unreachable!("the monitor polls a healthy server")
                    }
                };
                let hello = lists.of(HelloReply {
                    is_writable_primary: number == 0,
                    secondary: number > 0,
                    set_name: Some("rs"),
                    max_wire_version: 21,
                    ..HelloReply::OK
                });
                control.handle_reply(now, *server, conn, &hello, Matched::Last, &mut ()).expect("asked for");
                while control.poll_action().is_some() {
                    actions += 1;
                }
                answered += 1;
            }
        }
        assert_eq!(answered, 50, "every server was checked");
    };
    round(&mut control, now);
    let (count, ()) = allocations(|| {
        for _ in 0..10 {
            now = control.poll_timeout().expect("checks are due");
            control.handle_timeout(now, &mut ());
            round(&mut control, now);
            control.request_check(now);
        }
    });
    assert_eq!(count, 0, "allocations");
    assert!(actions > 50 * 10);
    control.assert_invariants();
}

/// The warm pool with a client's observers, without a subscriber: LOG-37.
#[test]
#[doc(alias = "LOG-37")]
fn logs_and_metrics_without_a_reader_allocate_nothing() {
    let mut pool = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(1), options().validate().expect("valid"), &mut ());
    let logs = Within::new(Logs::new(LogOptions::DEFAULT), EventContext::of_server("localhost:27017"));
    let mut observer = Tee(logs, PoolMetrics::new("localhost:27017"));
    pool.ready(Instant::ORIGIN, &mut observer);
    let mut turn = |pool: &mut Pool<OnHeap>, now: Instant| {
        let lease = match pool.check_out(now, None, &mut observer).expect("ready") {
            CheckOut::Granted(lease) => lease,
            CheckOut::Queued(waiter) => {
                let conn = pool.poll_establish().expect("an establishment is pending");
                pool.handle_established(now, conn, &mut observer).expect("pending");
                let Claim::Granted(lease) = pool.claim(now, waiter) else { panic!("granted") };
                lease
            }
        };
        pool.check_in(now, lease, Health::Healthy, &mut observer).expect("ours");
    };
    turn(&mut pool, Instant::ORIGIN);
    let (count, ()) = allocations(|| (0..1_000).for_each(|time| turn(&mut pool, Instant::from_nanos(time))));
    assert_eq!(count, 0, "allocations");
}

/// The same through the queue of the driver.
#[test]
fn log_queue_without_a_reader_allocates_nothing() {
    let queue = LogQueue::new(LogOptions::DEFAULT).of_server("localhost:27017");
    let event = PoolEvent::ConnectionCheckOutStarted { pool: PoolId::new(1) };
    let (count, ()) = allocations(|| {
        for _ in 0..1_000 {
            if queue.kinds() != EventKinds::NONE {
                queue.publish(Instant::ORIGIN, EventRef::Pool(&event));
            }
            queue.deliver();
        }
    });
    assert_eq!(count, 0, "allocations");
}

/// An OP_MSG with a document that fills half a buffer, and compresses well.
fn message() -> Vec<u8> {
    let document = bson::doc! { "ping": 1, "filler": "poolhouse ".repeat(2_000), "$db": "admin" };
    let body = document.to_vec().expect("a document");
    let len = i32::try_from(21 + body.len()).expect("small");
    let header = [len, 1, 0, 2013, 0].map(i32::to_le_bytes).concat();
    [&header[..], &[0], &body].concat()
}

/// The bytes that a compressor holds beyond the packer's buffers, after it has compressed and
/// inflated; zstd allocates them in C.
#[test]
fn compressors_hold_no_more_than_documented() {
    for (compressor, most) in [(Compressor::Snappy, 35 << 10), (Compressor::Zlib, 370 << 10)] {
        let only = Compressors::NONE.with(compressor);
        let mut kept = None;
        let taken = measure(|| {
            let packer = kept.insert(Packer::new(only, None));
            packer.agree(only);
            let limits = Limits::DEFAULT;
            let message = message();
            assert_eq!(packer.pack(&message, &limits), Ok(true));
            let packed = packer.packed().to_vec();
            assert!(matches!(packer.unpack(&packed, &limits), Ok(Unpacked::Inflated { .. })));
            assert_eq!(packer.inflated(), message);
        });
        let buffer_bytes = kept.map_or(0, |packer| packer.buffer_bytes());
        let held = usize::try_from(taken.bytes_current).expect("the compressor holds memory") - buffer_bytes;
        println!("{compressor}: {held} bytes");
        assert!(held <= most && held > most / 2, "{compressor}: {held} bytes, of {most}");
    }
}

/// P48, of a multiplexed pool that has all its connections: stream ids, replies, late replies, and
/// waiters.
#[test]
#[doc(alias = "P48")]
fn warm_multiplexed_pool_allocates_nothing() {
    use poolhouse_core::mux::{Acquire, Mux, MuxAction, MuxClaim, MuxId, MuxOnHeap, MuxOptions, Reply, Written};
    let options = MuxOptions { pool_timeout: Duration::from_secs(60), ..MuxOptions::DEFAULT_128 };
    let mut now = Instant::from_nanos(1);
    let mut mux = Mux::<MuxOnHeap>::new(now, MuxId::new(1), options.validate().expect("valid"), &mut ());
    mux.reserve(256).expect("memory");
    let mut streams = Vec::with_capacity(2_000);
    let mut waiters = Vec::with_capacity(300);
    let establish = |mux: &mut Mux<MuxOnHeap>, now| {
        while let Some(action) = mux.poll_action(now) {
            if let MuxAction::Establish(conn) = action {
                mux.handle_established(now, conn, &mut ()).expect("pending");
            }
        }
    };
    // As many connections as permitted, and all their stream ids.
    loop {
        establish(&mut mux, now);
        match mux.acquire(now, None, &mut ()) {
            Ok(Acquire::Granted(stream)) => streams.push(stream),
            Ok(Acquire::Queued(waiter)) => {
                waiters.push(waiter);
                break;
            }
            Err(error) => panic!("a waiter slot is free: {error}"),
        }
    }
    assert_eq!((mux.state().open, streams.len()), (8, 1_024));
    let (asked, ()) = allocations(|| {
        for round in 0..2_000_u32 {
            now = now.saturating_add(Duration::from_micros(10));
            while waiters.len() < 100 {
                let Ok(Acquire::Queued(waiter)) = mux.acquire(now, None, &mut ()) else {
                    unreachable!("all stream ids are in use")
                };
                waiters.push(waiter);
            }
            let stream = streams.swap_remove(round as usize * 7 % streams.len());
            let (conn, id) = (stream.conn(), i32::from(stream.id()));
            if round % 5 == 0 {
                mux.release(now, stream, Written::Perhaps, &mut ()).expect("ours");
                assert_eq!(mux.handle_reply(now, conn, id, &mut ()), Ok(Reply::Late));
            } else {
                assert_eq!(mux.handle_reply(now, conn, id, &mut ()), Ok(Reply::Request));
                mux.release(now, stream, Written::Perhaps, &mut ()).expect("ours");
            }
            while let Some(MuxAction::Wake(waiter)) = mux.poll_action(now) {
                let place = waiters.iter().position(|known| *known == waiter).expect("it waits");
                waiters.remove(place);
                let MuxClaim::Granted(stream) = mux.claim(now, waiter) else { unreachable!("the waiter was woken") };
                streams.push(stream);
            }
            if round % 10 == 0 {
                mux.cancel(now, waiters.pop().expect("some wait"), &mut ());
            }
            assert!(mux.poll_timeout().is_some());
            mux.handle_timeout(now, &mut ());
        }
    });
    assert_eq!(asked, 0);
    assert_eq!(mux.state().in_flight, 1_024);
}
