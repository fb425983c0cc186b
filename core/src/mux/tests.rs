//! A pool and a host that carries out its actions.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

mod chances;
mod edges;
mod equality;
mod pressure;
mod report;
mod scarce;

type Events = Vec<(Instant, MuxEvent)>;

struct World<M: MuxMemory = MuxOnHeap> {
    mux: Mux<M>,
    now: Instant,
    events: Events,
    establish: Vec<MuxConnId>,
    closed: Vec<MuxConnId>,
    woken: Vec<MuxWaiterId>,
    heartbeats: Vec<(MuxConnId, u16)>,
}

const SECOND: Duration = Duration::from_secs(1);

/// Small limits.
const SMALL: MuxOptions = MuxOptions {
    local: HostOptions {
        core_connections: 1,
        max_connections: 3,
        max_requests_per_connection: 4,
        new_connection_threshold: 3,
    },
    remote: HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection: 4,
        new_connection_threshold: 3,
    },
    streams_per_connection: 8,
    max_queue_size: 3,
    ..MuxOptions::DEFAULT
};

fn world(options: MuxOptions) -> World {
    World::new(options)
}

impl<M: MuxMemory> World<M> {
    fn new(options: MuxOptions) -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        let mut events = Vec::new();
        let config = options.validate().expect("the options are right");
        let mux = Mux::new(now, MuxId::new(7), config, &mut events);
        let mut world = Self {
            mux,
            now,
            events,
            establish: Vec::new(),
            closed: Vec::new(),
            woken: Vec::new(),
            heartbeats: Vec::new(),
        };
        world.drain();
        world
    }

    fn drain(&mut self) {
        while let Some(action) = self.mux.poll_action(self.now) {
            match action {
                MuxAction::Establish(conn) => self.establish.push(conn),
                MuxAction::Heartbeat(conn, stream) => self.heartbeats.push((conn, stream)),
                MuxAction::Close(conn) => self.closed.push(conn),
                MuxAction::Wake(waiter) => self.woken.push(waiter),
            }
        }
        self.mux.assert_invariants();
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Mux<M>, Instant, &mut Events) -> T) -> T {
        let done = act(&mut self.mux, self.now, &mut self.events);
        self.mux.assert_invariants();
        self.drain();
        done
    }

    /// Completes every pending establishment.
    fn establish(&mut self) {
        while let Some(conn) = self.establish.pop() {
            self.act(|mux, now, seen| mux.handle_established(now, conn, seen)).expect("it is awaited");
        }
    }

    /// Advances the clock, and calls the pool at each of its timeouts.
    fn wait(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while let Some(at) = self.mux.poll_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "it is asked to be called in the past");
            self.now = at;
            self.act(|mux, now, seen| mux.handle_timeout(now, seen));
            assert!(self.mux.poll_timeout().is_none_or(|next| next > at), "called for nothing at {at:?}");
            // The peers answer their heartbeats.
            for (conn, stream) in core::mem::take(&mut self.heartbeats) {
                let reply = self.act(|mux, now, seen| mux.handle_reply(now, conn, i32::from(stream), seen));
                assert_eq!(reply, Ok(Reply::Heartbeat));
            }
        }
        self.now = end;
    }

    fn acquire(&mut self) -> Result<Acquire, AcquireError> {
        self.act(|mux, now, seen| mux.acquire(now, None, seen))
    }

    fn stream(&mut self) -> Stream {
        match self.acquire() {
            Ok(Acquire::Granted(stream)) => stream,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn waiter(&mut self) -> MuxWaiterId {
        match self.acquire() {
            Ok(Acquire::Queued(waiter)) => waiter,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn claim(&mut self, waiter: MuxWaiterId) -> MuxClaim {
        self.act(|mux, now, _| mux.claim(now, waiter))
    }

    fn reply(&mut self, stream: &Stream) -> Result<Reply, ReplyError> {
        let (conn, id) = (stream.conn(), i32::from(stream.id()));
        self.act(|mux, now, seen| mux.handle_reply(now, conn, id, seen))
    }

    fn release(&mut self, stream: Stream, written: Written) {
        self.act(|mux, now, seen| mux.release(now, stream, written, seen)).expect("its own");
    }

    /// Delivers the reply of a request and releases its stream.
    fn answer(&mut self, stream: Stream) {
        assert_eq!(self.reply(&stream), Ok(Reply::Request));
        self.release(stream, Written::Perhaps);
    }

    fn state(&self) -> HostState {
        self.mux.state()
    }

    fn count(&self, name: &str) -> usize {
        self.events.iter().filter(|(_, event)| event.name() == name).count()
    }
}

#[test]
fn core_connections_are_opened_from_the_start() {
    let mut world = world(MuxOptions::DEFAULT_128);
    assert_eq!(world.establish.len(), 2);
    assert_eq!(world.state().establishing, 2);
    world.establish();
    let expected = HostState { open: 2, capacity: 256, ..HostState::default() };
    assert_eq!(world.state(), expected);
}

/// M6
#[test]
fn least_busy_connection_takes_the_request() {
    let mut world = world(MuxOptions::DEFAULT_128);
    world.establish();
    let streams: Vec<_> = (0..20).map(|_| world.stream()).collect();
    let mut seen = Vec::new();
    world.mux.for_each_conn(|_, in_flight, _| seen.push(in_flight));
    assert_eq!(seen, [10, 10]);
    for stream in streams {
        world.answer(stream);
    }
    assert_eq!(world.state().in_flight, 0);
}

#[test]
fn growth_begins_when_the_threshold_is_exceeded_one_at_a_time_up_to_the_maximum() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams: Vec<_> = (0..3).map(|_| world.stream()).collect();
    assert_eq!(world.establish.len(), 0, "3 do not exceed 3");
    streams.push(world.stream());
    assert_eq!(world.establish.len(), 1, "4 do");
    let waiter = world.waiter();
    assert_eq!(world.establish.len(), 1, "one at a time");
    world.establish();
    assert!(matches!(world.claim(waiter), MuxClaim::Granted(_)));
    assert_eq!(world.state().open, 2);
    streams.extend((0..2).map(|_| world.stream()));
    assert_eq!(world.establish.len(), 0, "7 do not exceed 4 + 3");
    streams.push(world.stream());
    assert_eq!(world.establish.len(), 1, "8 do");
    world.establish();
    streams.extend((0..4).map(|_| world.stream()));
    let queued = world.waiter();
    assert_eq!(world.establish.len(), 0, "never beyond the maximum");
    assert_eq!(world.claim(queued), MuxClaim::Waiting);
}

#[test]
fn full_queue_or_none_rejects_with_the_numbers() {
    let mut world = world(SMALL);
    world.establish();
    world.act(|mux, now, seen| {
        let local = HostOptions { max_connections: 1, ..SMALL.local };
        mux.reconfigure(now, MuxOptions { local, ..SMALL }.validate().expect("right"), seen);
    });
    let _streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    let waiters: Vec<_> = (0..3).map(|_| world.waiter()).collect();
    assert_eq!(waiters.iter().map(|waiter| waiter.index()).collect::<Vec<_>>(), [0, 1, 2], "each has a place");
    let busy = AcquireError::Busy { in_flight: 4, queued: 3, queue_max: 3 };
    assert_eq!(world.acquire(), Err(busy));
    assert_eq!(busy.to_string(), "the host is busy: 4 requests are in flight, and 3 of at most 3 wait");
    for waiter in waiters {
        world.act(|mux, now, seen| mux.cancel(now, waiter, seen));
    }
    for options in [MuxOptions { max_queue_size: 0, ..SMALL }, MuxOptions { pool_timeout: Duration::ZERO, ..SMALL }] {
        let mut world = World::<MuxOnHeap>::new(options);
        assert!(matches!(world.acquire(), Err(AcquireError::Busy { in_flight: 0, queued: 0, .. })));
    }
}

/// M5
#[test]
fn waiting_requests_are_served_in_order_and_time_out() {
    let mut world = world(SMALL);
    let first = world.waiter();
    world.wait(SECOND);
    let second = world.waiter();
    let deadline = world.now.saturating_add(SECOND / 2);
    let Ok(Acquire::Queued(third)) = world.act(|mux, now, seen| mux.acquire(now, Some(deadline), seen)) else {
        panic!("not queued")
    };
    assert_eq!(world.mux.poll_timeout(), Some(deadline));
    world.wait(SECOND / 2);
    assert_eq!(world.claim(third), MuxClaim::Failed(AcquireError::TimedOut { in_flight: 0, queued: 3 }));
    world.wait(Duration::from_millis(3499));
    assert_eq!(world.claim(first), MuxClaim::Waiting);
    world.wait(Duration::from_millis(1));
    assert!(matches!(world.claim(first), MuxClaim::Failed(AcquireError::TimedOut { .. })));
    world.establish();
    assert!(matches!(world.claim(second), MuxClaim::Granted(_)));
    assert_eq!(world.claim(second), MuxClaim::Stale);
}

#[test]
fn granted_stream_of_a_cancelled_request_goes_to_the_next() {
    let options = MuxOptions { local: HostOptions { max_connections: 1, ..SMALL.local }, ..SMALL };
    let mut world = world(options);
    world.establish();
    let mut streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    let (first, second) = (world.waiter(), world.waiter());
    let stream = streams.pop().expect("four");
    world.answer(stream);
    assert_eq!(world.woken, [first]);
    world.act(|mux, now, seen| mux.cancel(now, first, seen));
    assert_eq!(world.woken, [first, second]);
    assert!(matches!(world.claim(second), MuxClaim::Granted(_)));
    assert_eq!(world.state().orphaned, 0, "nothing was written");
}

/// M3
#[test]
fn id_of_an_abandoned_request_is_reserved_until_its_late_reply() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let (conn, id) = (stream.conn(), stream.id());
    world.release(stream, Written::Perhaps);
    assert_eq!((world.state().orphaned, world.state().in_flight), (1, 0));
    for _ in 0..100 {
        let other = world.stream();
        assert_ne!(other.id(), id);
        world.answer(other);
    }
    let late = world.act(|mux, now, seen| mux.handle_reply(now, conn, i32::from(id), seen));
    assert_eq!(late, Ok(Reply::Late));
    assert_eq!(world.state().orphaned, 0);
}

/// M2
#[test]
fn unexpected_reply_closes_the_connection() {
    for (what, stream) in
        [("a free id", 5), ("beyond", 8), ("far beyond", i32::MAX), ("negative", -1), ("least", i32::MIN)]
    {
        let mut world = world(SMALL);
        world.establish();
        let mine = world.stream();
        let conn = mine.conn();
        let error = world.act(|mux, now, seen| mux.handle_reply(now, conn, stream, seen));
        assert_eq!(error, Err(ReplyError::Unknown { stream }), "{what}");
        assert_eq!(world.closed, [conn]);
        assert_eq!(world.state().in_flight, 0);
        assert_eq!(world.reply(&mine), Err(ReplyError::Stale));
        world.release(mine, Written::Perhaps);
        assert_eq!(world.establish.len(), 1, "another one is opened");
    }
}

/// M2
#[test]
fn second_reply_to_one_request_closes_the_connection() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    assert_eq!(world.reply(&stream), Ok(Reply::Request));
    assert!(matches!(world.reply(&stream), Err(ReplyError::Unknown { .. })), "before it is released");
    world.establish();
    let stream = world.stream();
    let (conn, id) = (stream.conn(), i32::from(stream.id()));
    world.answer(stream);
    let again = world.act(|mux, now, seen| mux.handle_reply(now, conn, id, seen));
    assert!(matches!(again, Err(ReplyError::Unknown { .. })), "after");
}

/// M3
#[test]
fn connection_with_less_than_three_quarters_of_its_ids_is_replaced() {
    let mut world = world(SMALL);
    world.establish();
    let old = world.stream();
    let conn = old.conn();
    for _ in 0..2 {
        let stream = world.stream();
        world.release(stream, Written::Perhaps);
    }
    assert_eq!(world.count("ConnectionRetired"), 0, "6 of 8 are three quarters");
    let stream = world.stream();
    world.release(stream, Written::Perhaps);
    assert_eq!(world.count("ConnectionRetired"), 1, "5 are less");
    assert_eq!(world.establish.len(), 1);
    world.establish();
    let new = world.stream();
    assert_ne!(new.conn(), conn);
    assert_eq!(world.closed, [], "its last request is in flight");
    world.answer(old);
    assert_eq!(world.closed, [conn]);
}

#[test]
fn surplus_connections_are_trashed_then_resurrected_or_closed() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams = Vec::new();
    for _ in 0..9 {
        streams.push(world.stream());
        world.establish();
    }
    assert_eq!(world.state().open, 3);
    while streams.len() > 1 {
        let stream = streams.pop().expect("some");
        world.answer(stream);
    }
    // The load was high during this interval.
    world.wait(Duration::from_secs(10));
    assert_eq!(world.state().trashed, 0);
    world.wait(Duration::from_secs(10));
    assert_eq!((world.state().open, world.state().trashed), (1, 2));
    let trashed: Vec<_> = world.events.iter().rev().filter(|(_, event)| event.name() == "ConnectionTrashed").collect();
    let newest = trashed[0].1.conn().expect("it has one");
    streams.extend((0..3).map(|_| world.stream()));
    assert_eq!((world.state().open, world.state().trashed), (2, 1));
    assert_eq!(world.events.last().expect("some").1.name(), "ConnectionResurrected");
    assert_eq!(world.events.last().expect("some").1.conn(), Some(newest));
    assert_eq!(world.establish.len(), 0, "nothing is opened");
    world.wait(Duration::from_secs(120));
    assert_eq!((world.state().open, world.state().trashed), (2, 0));
    assert_eq!(world.closed.len(), 1);
}

#[test]
fn trashed_connection_that_is_busy_is_closed_when_its_last_request_is_answered() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(world.stream());
        world.establish();
    }
    // One request of the second connection remains, and none of the first.
    let left = streams.pop().expect("five");
    for stream in streams {
        world.answer(stream);
    }
    let busy = left.conn();
    world.act(|mux, now, seen| {
        let local = HostOptions { max_connections: 1, ..SMALL.local };
        mux.reconfigure(now, MuxOptions { local, ..SMALL }.validate().expect("right"), seen);
    });
    // The least busy connection is trashed, which is the other one.
    assert_eq!(world.state().trashed, 1);
    assert_ne!(world.events.last().expect("some").1.conn(), Some(busy));
    world.wait(Duration::from_secs(121));
    assert_eq!(world.state().trashed, 0);
    world.answer(left);
}

/// Load that varies around the threshold does not open and trash connections in turn.
#[test]
fn load_at_the_threshold_keeps_the_number_of_connections() {
    let options = MuxOptions {
        local: HostOptions {
            core_connections: 1,
            max_connections: 8,
            max_requests_per_connection: 128,
            new_connection_threshold: 100,
        },
        streams_per_connection: 128,
        ..MuxOptions::DEFAULT_128
    };
    for level in [100, 128, 228, 256] {
        let mut world = world(options);
        world.establish();
        let mut streams: Vec<Stream> = Vec::new();
        for round in 0..200_usize {
            let wanted = level + round % 3 - 1;
            while streams.len() < wanted {
                streams.push(world.stream());
                world.establish();
            }
            while streams.len() > wanted {
                let stream = streams.pop().expect("some");
                world.answer(stream);
            }
            world.wait(Duration::from_secs(5));
        }
        assert_eq!(world.count("ConnectionTrashed"), 0, "at {level}");
        assert!(world.count("ConnectionCreated") <= 3, "at {level}");
    }
}

#[test]
fn unanswered_heartbeat_closes_the_connection() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let conn = stream.conn();
    world.wait(Duration::from_secs(30));
    assert_eq!(world.count("HeartbeatSucceeded"), 1);
    let begun = world.now;
    assert_eq!(world.mux.poll_timeout(), Some(begun.saturating_add(Duration::from_secs(30))));
    world.now = begun.saturating_add(Duration::from_secs(30));
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(world.heartbeats.len(), 1);
    let (asked, id) = world.heartbeats[0];
    assert_eq!(asked, conn);
    assert_ne!(id, stream.id());
    world.now = world.mux.poll_timeout().expect("it waits for the answer");
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(world.count("HeartbeatFailed"), 1);
    assert_eq!(world.closed, [conn]);
    assert_eq!(world.state().in_flight, 0);
    world.release(stream, Written::Perhaps);
}

#[test]
fn heartbeats_may_be_switched_off() {
    let mut world = world(MuxOptions { heartbeat_interval: Duration::ZERO, ..SMALL });
    world.establish();
    assert_eq!(world.mux.poll_timeout(), None, "an idle pool asks for nothing");
}

#[test]
fn failed_attempts_fail_waiting_requests_and_are_repeated_with_growing_pauses() {
    let mut world = world(SMALL);
    let waiter = world.waiter();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let conn = world.establish.pop().expect("an attempt");
        world.act(|mux, now, seen| mux.handle_establish_failed(now, conn, Cause::Network, seen)).expect("awaited");
        let down = AcquireError::Down { cause: Cause::Network };
        assert_eq!(world.acquire(), Err(down));
        let at = world.mux.poll_timeout().expect("it tries again");
        pauses.push(at.saturating_since(world.now).as_secs());
        world.now = at;
        world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert!(matches!(world.claim(waiter), MuxClaim::Failed(AcquireError::Down { .. })));
    world.establish();
    drop(world.stream());
}

#[test]
fn ignored_host_has_no_connections_until_it_is_used_again() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let ignored = MuxOptions { distance: Distance::Ignored, ..SMALL }.validate().expect("right");
    world.act(|mux, now, seen| mux.reconfigure(now, ignored, seen));
    assert_eq!(world.acquire(), Err(AcquireError::Ignored));
    assert_eq!((world.state().open, world.state().retired), (0, 1));
    world.answer(stream);
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.mux.poll_timeout(), None);
    world.act(|mux, now, seen| mux.reconfigure(now, SMALL.validate().expect("right"), seen));
    world.establish();
    drop(world.stream());
}

/// M4
#[test]
fn closing_fails_every_request_once() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let streams: Vec<_> = (0..3).map(|_| world.stream()).collect();
    let waiter = world.waiter();
    world.act(|mux, now, seen| mux.close(now, seen));
    assert_eq!(world.claim(waiter), MuxClaim::Failed(AcquireError::Closed));
    assert_eq!(world.acquire(), Err(AcquireError::Closed));
    assert_eq!(world.state(), HostState::default());
    world.release(stream, Written::Perhaps);
    drop(streams);
    world.act(|mux, now, seen| mux.close(now, seen));
    assert_eq!(world.count("PoolClosed"), 1);
    assert_eq!(world.mux.poll_timeout(), None);
}

#[test]
fn stream_of_another_pool_is_handed_back() {
    let mut world = world(SMALL);
    world.establish();
    let mut stream = world.stream();
    stream.mux = MuxId::new(8);
    let refused = world.act(|mux, now, seen| mux.release(now, stream, Written::Perhaps, seen));
    let ForeignStream(mut stream) = refused.expect_err("it is another's");
    stream.mux = MuxId::new(7);
    world.answer(stream);
}

#[test]
fn fixed_memory_limits_connections_and_waiting_requests() {
    let options = MuxOptions { streams_per_connection: 200, ..SMALL };
    let mut world = World::<MuxFixed<2, 1, { stream_words(64) }>>::new(options);
    world.establish();
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(world.stream());
        world.establish();
    }
    assert_eq!(world.state().open, 2, "there is no place for a third");
    let _waiter = world.waiter();
    assert!(matches!(world.acquire(), Err(AcquireError::Busy { .. })), "nor for a second that waits");
    for stream in streams {
        world.answer(stream);
    }
}

#[test]
fn invalid_options_are_refused_by_name() {
    let host = SMALL.local;
    let bad = [
        (MuxOptions { streams_per_connection: 0, ..SMALL }, "streamsPerConnection is 0, but must be from 1 to 32768"),
        (
            MuxOptions { streams_per_connection: 32_769, ..SMALL },
            "streamsPerConnection is 32769, but must be from 1 to 32768",
        ),
        (
            MuxOptions { local: HostOptions { max_connections: 0, ..host }, ..SMALL },
            "maxConnections is 0, but must be at least 1",
        ),
        (
            MuxOptions { local: HostOptions { core_connections: 4, ..host }, ..SMALL },
            "coreConnections is 4, but must be at most maxConnections",
        ),
        (
            MuxOptions { remote: HostOptions { max_requests_per_connection: 9, ..host }, ..SMALL },
            "maxRequestsPerConnection is 9, but must be from 1 to streamsPerConnection",
        ),
        (
            MuxOptions { local: HostOptions { new_connection_threshold: 5, ..host }, ..SMALL },
            "newConnectionThreshold is 5, but must be at most maxRequestsPerConnection",
        ),
        (MuxOptions { shrink_interval: Duration::ZERO, ..SMALL }, "shrinkIntervalMS is 0, but must be more than 0"),
    ];
    for (options, text) in bad {
        assert_eq!(options.validate().expect_err(text).to_string(), text);
    }
    for options in [MuxOptions::DEFAULT, MuxOptions::DEFAULT_128] {
        assert!(options.validate().is_ok());
    }
}

#[test]
fn closed_pool_reports_that_it_is_closed() {
    let mut world = world(SMALL);
    assert!(!world.mux.is_closed());
    world.mux.close(world.now, &mut world.events);
    assert!(world.mux.is_closed());
}

#[test]
fn the_oldest_of_equally_busy_connections_takes_the_request() {
    let local = HostOptions { core_connections: 3, ..SMALL.local };
    let mut world = world(MuxOptions { local, ..SMALL });
    world.establish();
    let streams: Vec<_> = (0..6).map(|_| world.stream()).collect();
    let order: Vec<_> = streams.iter().map(Stream::conn).collect();
    assert_eq!(order[..3], order[3..], "in turn, and again in the same order");
    let mut open = Vec::new();
    world.mux.for_each_conn(|conn, in_flight, takes| {
        assert_eq!((in_flight, takes), (2, true));
        open.push(conn);
    });
    assert_eq!(order[..3], open, "the oldest first");
}
