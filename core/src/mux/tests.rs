//! A pool and a host that carries out its actions.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

mod chances;
mod edges;
mod equality;
mod pressure;
mod replacement;
mod report;
mod scarce;

type Events = Vec<(Instant, MuxEvent)>;

struct Rig<M: MuxMemory = MuxOnHeap> {
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
    backoff_min: SECOND,
    backoff_max: Duration::from_secs(60),
    ..MuxOptions::DEFAULT
};

fn rig(options: MuxOptions) -> Rig {
    Rig::new(options)
}

impl<M: MuxMemory> Rig<M> {
    fn new(options: MuxOptions) -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        let mut events = Vec::new();
        let config = options.validate().expect("the options are right");
        let mux = Mux::new(now, MuxId::new(7), config, &mut events);
        let mut rig = Self {
            mux,
            now,
            events,
            establish: Vec::new(),
            closed: Vec::new(),
            woken: Vec::new(),
            heartbeats: Vec::new(),
        };
        rig.drain();
        rig
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
    let mut rig = rig(MuxOptions::DEFAULT_128);
    assert_eq!(rig.establish.len(), 2);
    assert_eq!(rig.state().establishing, 2);
    rig.establish();
    let expected = HostState { open: 2, capacity: 256, ..HostState::default() };
    assert_eq!(rig.state(), expected);
}

#[test]
#[doc(alias = "M6")]
fn least_busy_connection_takes_the_request() {
    let mut rig = rig(MuxOptions::DEFAULT_128);
    rig.establish();
    let streams: Vec<_> = (0..20).map(|_| rig.stream()).collect();
    let mut seen = Vec::new();
    rig.mux.for_each_conn(|_, in_flight, _| seen.push(in_flight));
    assert_eq!(seen, [10, 10]);
    for stream in streams {
        rig.answer(stream);
    }
    assert_eq!(rig.state().in_flight, 0);
}

#[test]
fn growth_begins_when_the_threshold_is_exceeded_one_at_a_time_up_to_the_maximum() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    assert_eq!(rig.establish.len(), 0, "3 do not exceed 3");
    streams.push(rig.stream());
    assert_eq!(rig.establish.len(), 1, "4 do");
    let waiter = rig.waiter();
    assert_eq!(rig.establish.len(), 1, "one at a time");
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
    assert_eq!(rig.state().open, 2);
    streams.extend((0..2).map(|_| rig.stream()));
    assert_eq!(rig.establish.len(), 0, "7 do not exceed 4 + 3");
    streams.push(rig.stream());
    assert_eq!(rig.establish.len(), 1, "8 do");
    rig.establish();
    streams.extend((0..4).map(|_| rig.stream()));
    let queued = rig.waiter();
    assert_eq!(rig.establish.len(), 0, "never beyond the maximum");
    assert_eq!(rig.claim(queued), MuxClaim::Waiting);
}

#[test]
fn full_queue_or_none_rejects_with_the_numbers() {
    let mut rig = rig(SMALL);
    rig.establish();
    rig.act(|mux, now, seen| {
        let local = HostOptions { max_connections: 1, ..SMALL.local };
        mux.reconfigure(now, MuxOptions { local, ..SMALL }.validate().expect("right"), seen);
    });
    let _streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    let waiters: Vec<_> = (0..3).map(|_| rig.waiter()).collect();
    assert_eq!(waiters.iter().map(|waiter| waiter.index()).collect::<Vec<_>>(), [0, 1, 2], "each has a place");
    let busy = AcquireError::Busy { in_flight: 4, queued: 3, queue_max: 3 };
    assert_eq!(rig.acquire(), Err(busy));
    assert_eq!(busy.to_string(), "the host is busy: 4 requests are in flight, and 3 of at most 3 wait");
    for waiter in waiters {
        rig.act(|mux, now, seen| mux.cancel(now, waiter, seen));
    }
    for options in [MuxOptions { max_queue_size: 0, ..SMALL }, MuxOptions { pool_timeout: Duration::ZERO, ..SMALL }] {
        let mut rig = Rig::<MuxOnHeap>::new(options);
        assert!(matches!(rig.acquire(), Err(AcquireError::Busy { in_flight: 0, queued: 0, .. })));
    }
}

#[test]
#[doc(alias = "M5")]
fn waiting_requests_are_served_in_order_and_time_out() {
    let mut rig = rig(SMALL);
    let first = rig.waiter();
    rig.wait(SECOND);
    let second = rig.waiter();
    let deadline = rig.now.saturating_add(SECOND / 2);
    let Ok(Acquire::Queued(third)) = rig.act(|mux, now, seen| mux.acquire(now, Some(deadline), seen)) else {
        panic!("not queued")
    };
    assert_eq!(rig.mux.poll_timeout(), Some(deadline));
    rig.wait(SECOND / 2);
    assert_eq!(rig.claim(third), MuxClaim::Failed(AcquireError::TimedOut { in_flight: 0, queued: 3 }));
    rig.wait(Duration::from_millis(3499));
    assert_eq!(rig.claim(first), MuxClaim::Waiting);
    rig.wait(Duration::from_millis(1));
    assert!(matches!(rig.claim(first), MuxClaim::Failed(AcquireError::TimedOut { .. })));
    rig.establish();
    assert!(matches!(rig.claim(second), MuxClaim::Granted(_)));
    assert_eq!(rig.claim(second), MuxClaim::Stale);
}

#[test]
fn granted_stream_of_a_cancelled_request_goes_to_the_next() {
    let options = MuxOptions { local: HostOptions { max_connections: 1, ..SMALL.local }, ..SMALL };
    let mut rig = rig(options);
    rig.establish();
    let mut streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    let (first, second) = (rig.waiter(), rig.waiter());
    let stream = streams.pop().expect("four");
    rig.answer(stream);
    assert_eq!(rig.woken, [first]);
    rig.act(|mux, now, seen| mux.cancel(now, first, seen));
    assert_eq!(rig.woken, [first, second]);
    assert!(matches!(rig.claim(second), MuxClaim::Granted(_)));
    assert_eq!(rig.state().orphaned, 0, "nothing was written");
}

#[test]
#[doc(alias = "M3")]
fn id_of_an_abandoned_request_is_reserved_until_its_late_reply() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let (conn, id) = (stream.conn(), stream.id());
    rig.release(stream, Written::Perhaps);
    assert_eq!((rig.state().orphaned, rig.state().in_flight), (1, 0));
    for _ in 0..100 {
        let other = rig.stream();
        assert_ne!(other.id(), id);
        rig.answer(other);
    }
    let late = rig.act(|mux, now, seen| mux.handle_reply(now, conn, i32::from(id), seen));
    assert_eq!(late, Ok(Reply::Late));
    assert_eq!(rig.state().orphaned, 0);
}

#[test]
#[doc(alias = "M2")]
fn unexpected_reply_closes_the_connection() {
    for (what, stream) in
        [("a free id", 5), ("beyond", 8), ("far beyond", i32::MAX), ("negative", -1), ("least", i32::MIN)]
    {
        let mut rig = rig(SMALL);
        rig.establish();
        let mine = rig.stream();
        let conn = mine.conn();
        let error = rig.act(|mux, now, seen| mux.handle_reply(now, conn, stream, seen));
        assert_eq!(error, Err(ReplyError::Unknown { stream }), "{what}");
        assert_eq!(rig.closed, [conn]);
        assert_eq!(rig.state().in_flight, 0);
        assert_eq!(rig.reply(&mine), Err(ReplyError::Stale));
        rig.release(mine, Written::Perhaps);
        rig.wait(SECOND);
        assert_eq!(rig.establish.len(), 1, "another one is opened after a pause");
    }
}

#[test]
#[doc(alias = "M2")]
fn second_reply_to_one_request_closes_the_connection() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    assert_eq!(rig.reply(&stream), Ok(Reply::Request));
    assert!(matches!(rig.reply(&stream), Err(ReplyError::Unknown { .. })), "before it is released");
    rig.wait(SECOND);
    rig.establish();
    let stream = rig.stream();
    let (conn, id) = (stream.conn(), i32::from(stream.id()));
    rig.answer(stream);
    let again = rig.act(|mux, now, seen| mux.handle_reply(now, conn, id, seen));
    assert!(matches!(again, Err(ReplyError::Unknown { .. })), "after");
}

#[test]
#[doc(alias = "M3")]
fn connection_with_less_than_three_quarters_of_its_ids_is_replaced() {
    let mut rig = rig(SMALL);
    rig.establish();
    let old = rig.stream();
    let conn = old.conn();
    for _ in 0..2 {
        let stream = rig.stream();
        rig.release(stream, Written::Perhaps);
    }
    assert_eq!(rig.count("ConnectionRetired"), 0, "6 of 8 are three quarters");
    let stream = rig.stream();
    rig.release(stream, Written::Perhaps);
    assert_eq!(rig.count("ConnectionRetired"), 1, "5 are less");
    assert_eq!(rig.establish.len(), 1);
    rig.establish();
    let new = rig.stream();
    assert_ne!(new.conn(), conn);
    assert_eq!(rig.closed, [], "its last request is in flight");
    rig.answer(old);
    assert_eq!(rig.closed, [conn]);
}

#[test]
fn surplus_connections_are_trashed_then_resurrected_or_closed() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams = Vec::new();
    for _ in 0..9 {
        streams.push(rig.stream());
        rig.establish();
    }
    assert_eq!(rig.state().open, 3);
    while streams.len() > 1 {
        let stream = streams.pop().expect("some");
        rig.answer(stream);
    }
    // The load was high during this interval.
    rig.wait(Duration::from_secs(10));
    assert_eq!(rig.state().trashed, 0);
    rig.wait(Duration::from_secs(10));
    assert_eq!((rig.state().open, rig.state().trashed), (1, 2));
    let trashed: Vec<_> = rig.events.iter().rev().filter(|(_, event)| event.name() == "ConnectionTrashed").collect();
    let newest = trashed[0].1.conn().expect("it has one");
    streams.extend((0..3).map(|_| rig.stream()));
    assert_eq!((rig.state().open, rig.state().trashed), (2, 1));
    assert_eq!(rig.events.last().expect("some").1.name(), "ConnectionResurrected");
    assert_eq!(rig.events.last().expect("some").1.conn(), Some(newest));
    assert_eq!(rig.establish.len(), 0, "nothing is opened");
    rig.wait(Duration::from_secs(120));
    assert_eq!((rig.state().open, rig.state().trashed), (2, 0));
    assert_eq!(rig.closed.len(), 1);
}

#[test]
fn trashed_connection_that_is_busy_is_closed_when_its_last_request_is_answered() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(rig.stream());
        rig.establish();
    }
    // One request of the second connection remains, and none of the first.
    let left = streams.pop().expect("five");
    for stream in streams {
        rig.answer(stream);
    }
    let busy = left.conn();
    rig.act(|mux, now, seen| {
        let local = HostOptions { max_connections: 1, ..SMALL.local };
        mux.reconfigure(now, MuxOptions { local, ..SMALL }.validate().expect("right"), seen);
    });
    // The least busy connection is trashed, which is the other one.
    assert_eq!(rig.state().trashed, 1);
    assert_ne!(rig.events.last().expect("some").1.conn(), Some(busy));
    rig.wait(Duration::from_secs(121));
    assert_eq!(rig.state().trashed, 0);
    rig.answer(left);
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
        let mut rig = rig(options);
        rig.establish();
        let mut streams: Vec<Stream> = Vec::new();
        for round in 0..200_usize {
            let wanted = level + round % 3 - 1;
            while streams.len() < wanted {
                streams.push(rig.stream());
                rig.establish();
            }
            while streams.len() > wanted {
                let stream = streams.pop().expect("some");
                rig.answer(stream);
            }
            rig.wait(Duration::from_secs(5));
        }
        assert_eq!(rig.count("ConnectionTrashed"), 0, "at {level}");
        assert!(rig.count("ConnectionCreated") <= 3, "at {level}");
    }
}

#[test]
fn unanswered_heartbeat_closes_the_connection() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let conn = stream.conn();
    rig.wait(Duration::from_secs(30));
    assert_eq!(rig.count("HeartbeatSucceeded"), 1);
    let begun = rig.now;
    assert_eq!(rig.mux.poll_timeout(), Some(begun.saturating_add(Duration::from_secs(30))));
    rig.now = begun.saturating_add(Duration::from_secs(30));
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(rig.heartbeats.len(), 1);
    let (asked, id) = rig.heartbeats[0];
    assert_eq!(asked, conn);
    assert_ne!(id, stream.id());
    rig.now = rig.mux.poll_timeout().expect("it waits for the answer");
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(rig.count("HeartbeatFailed"), 1);
    assert_eq!(rig.closed, [conn]);
    assert_eq!(rig.state().in_flight, 0);
    rig.release(stream, Written::Perhaps);
}

#[test]
fn heartbeats_may_be_switched_off() {
    let mut rig = rig(MuxOptions { heartbeat_interval: Duration::ZERO, ..SMALL });
    rig.establish();
    assert_eq!(rig.mux.poll_timeout(), None, "an idle pool asks for nothing");
}

#[test]
fn failed_attempts_fail_waiting_requests_and_are_repeated_with_growing_pauses() {
    let mut rig = rig(SMALL);
    let waiter = rig.waiter();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let conn = rig.establish.pop().expect("an attempt");
        rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, Cause::Network, seen)).expect("awaited");
        let down = AcquireError::Down { cause: Cause::Network };
        assert_eq!(rig.acquire(), Err(down));
        let at = rig.mux.poll_timeout().expect("it tries again");
        pauses.push(at.saturating_since(rig.now).as_secs());
        rig.now = at;
        rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert!(matches!(rig.claim(waiter), MuxClaim::Failed(AcquireError::Down { .. })));
    rig.establish();
    drop(rig.stream());
}

/// The pause after each of so many failures for this cause, in milliseconds.
fn pauses_after<M: MuxMemory>(rig: &mut Rig<M>, cause: Cause, count: usize) -> Vec<u128> {
    let mut pauses = Vec::new();
    for _ in 0..count {
        let conn = rig.establish.pop().expect("an attempt");
        rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, cause, seen)).expect("awaited");
        let at = rig.mux.poll_timeout().expect("it tries again");
        pauses.push(at.saturating_since(rig.now).as_millis());
        rig.now = at;
        rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    }
    pauses
}

/// By default.
const DEFAULT_PAUSES: MuxOptions =
    MuxOptions { backoff_min: MuxOptions::DEFAULT.backoff_min, backoff_max: MuxOptions::DEFAULT.backoff_max, ..SMALL };

#[test]
fn host_that_listens_again_is_tried_within_half_a_second() {
    for cause in [Cause::Network, Cause::NetworkTimeout] {
        assert_eq!(pauses_after(&mut rig(DEFAULT_PAUSES), cause, 6), [50, 100, 200, 400, 500, 500]);
    }
    // The report of an available host never lengthens a pause.
    let mut rig = rig(DEFAULT_PAUSES);
    rig.act(|mux, now, seen| mux.handle_host_up(now, seen));
    assert_eq!(pauses_after(&mut rig, Cause::Network, 1), [50]);
}

#[test]
fn host_that_refuses_is_spared_up_to_a_minute() {
    for cause in [Cause::Authentication, Cause::Protocol, Cause::Command { code: 0x2200 }, Cause::Resources] {
        let mut rig = rig(DEFAULT_PAUSES);
        let grown = [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000];
        assert_eq!(pauses_after(&mut rig, cause, 13), grown);
        // It restarts, and refuses connections until it listens again.
        assert_eq!(pauses_after(&mut rig, Cause::Network, 2), [500, 500]);
        // The pauses of an outage do not count for what follows it.
        assert_eq!(pauses_after(&mut rig, cause, 2), [1_000, 2_000]);
    }
    let long = MuxOptions { backoff_max: SECOND * 90, backoff_min: SECOND * 80, ..SMALL };
    assert_eq!(pauses_after(&mut rig(long), Cause::Authentication, 2), [80_000, 90_000]);
}

#[test]
fn pauses_are_shortened_by_a_random_quarter_at_most() {
    let options = MuxOptions { backoff_min: SECOND, backoff_max: SECOND, ..SMALL };
    let with = |entropy| {
        let mut rig = rig(options);
        rig.mux.set_entropy(entropy);
        pauses_after(&mut rig, Cause::Network, 200)
    };
    let pauses = with(0x9e37_79b9);
    assert!(pauses.iter().all(|pause| (750..=1_000).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause < 800) && pauses.iter().any(|pause| *pause > 950), "{pauses:?}");
    assert_ne!(with(1), pauses, "another pool pauses for other times");
    // No pause overflows.
    let longest = MuxOptions { backoff_min: Duration::MAX, backoff_max: Duration::MAX, ..SMALL };
    let mut rig = rig(longest);
    rig.mux.set_entropy(u32::MAX);
    let conn = rig.establish.pop().expect("an attempt");
    rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, Cause::Network, seen)).expect("awaited");
    assert_eq!(rig.mux.poll_timeout(), None, "it is never tried again");
}

#[test]
fn shorter_backoff_max_ends_a_longer_pause() {
    let reconfigure = |rig: &mut Rig, options: MuxOptions| {
        rig.act(|mux, now, seen| mux.reconfigure(now, options.validate().expect("right"), seen));
    };
    let mut rig = rig(MuxOptions { backoff_min: SECOND * 30, ..SMALL });
    let conn = rig.establish.pop().expect("an attempt");
    let failed = rig.now;
    rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, Cause::Network, seen)).expect("awaited");
    reconfigure(&mut rig, MuxOptions { backoff_min: SECOND, backoff_max: SECOND * 20, ..SMALL });
    assert_eq!(rig.mux.poll_timeout(), Some(failed.saturating_add(SECOND * 20)));
    rig.now = rig.now.saturating_add(SECOND * 5);
    reconfigure(&mut rig, DEFAULT_PAUSES);
    assert_eq!(rig.establish.len(), 1, "the pause is over");
    assert_eq!(pauses_after(&mut rig, Cause::Network, 1), [500]);
}

#[test]
fn host_that_is_reported_to_be_up_is_tried_at_most_four_times_a_second() {
    let mut rig = rig(SMALL);
    let report = |rig: &mut Rig| rig.act(|mux, now, seen| mux.handle_host_up(now, seen));
    let fail = |rig: &mut Rig| {
        let conn = rig.establish.pop().expect("an attempt");
        rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, Cause::Network, seen)).expect("awaited");
    };
    // Advances the clock to the next attempt.
    let pause = |rig: &mut Rig| {
        let at = rig.mux.poll_timeout().expect("it tries again");
        let pause = at.saturating_since(rig.now);
        rig.now = at;
        rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
        pause
    };
    for _ in 0..4 {
        fail(&mut rig);
        // Reports during the pause bring the attempt forward once.
        for _ in 0..3 {
            report(&mut rig);
            assert!(rig.establish.is_empty());
        }
        assert_eq!(pause(&mut rig), Duration::from_millis(250));
    }
    // Without reports, the pauses have grown meanwhile.
    fail(&mut rig);
    assert_eq!(pause(&mut rig), Duration::from_secs(16));
    // A report during an attempt counts if the attempt fails, and only then.
    report(&mut rig);
    fail(&mut rig);
    assert_eq!(pause(&mut rig), Duration::from_millis(250));
    fail(&mut rig);
    rig.now = rig.now.saturating_add(Duration::from_secs(15));
    assert_eq!(rig.establish, []);
    report(&mut rig);
    rig.establish();
    report(&mut rig);
    assert_eq!(rig.establish, []);
}

#[test]
fn ignored_host_has_no_connections_until_it_is_used_again() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let ignored = MuxOptions { distance: Distance::Ignored, ..SMALL }.validate().expect("right");
    rig.act(|mux, now, seen| mux.reconfigure(now, ignored, seen));
    assert_eq!(rig.acquire(), Err(AcquireError::Ignored));
    assert_eq!((rig.state().open, rig.state().retired), (0, 1));
    rig.answer(stream);
    assert_eq!(rig.closed.len(), 1);
    assert_eq!(rig.mux.poll_timeout(), None);
    rig.act(|mux, now, seen| mux.reconfigure(now, SMALL.validate().expect("right"), seen));
    rig.establish();
    drop(rig.stream());
}

#[test]
#[doc(alias = "M4")]
fn closing_fails_every_request_once() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let streams: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    let waiter = rig.waiter();
    rig.act(|mux, now, seen| mux.close(now, seen));
    assert_eq!(rig.claim(waiter), MuxClaim::Failed(AcquireError::Closed));
    assert_eq!(rig.acquire(), Err(AcquireError::Closed));
    assert_eq!(rig.state(), HostState::default());
    rig.release(stream, Written::Perhaps);
    drop(streams);
    rig.act(|mux, now, seen| mux.close(now, seen));
    assert_eq!(rig.count("PoolClosed"), 1);
    assert_eq!(rig.mux.poll_timeout(), None);
}

#[test]
fn stream_of_another_pool_is_handed_back() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut stream = rig.stream();
    stream.mux = MuxId::new(8);
    let refused = rig.act(|mux, now, seen| mux.release(now, stream, Written::Perhaps, seen));
    let ForeignStream(mut stream) = refused.expect_err("it is another's");
    stream.mux = MuxId::new(7);
    rig.answer(stream);
}

#[test]
fn fixed_memory_limits_connections_and_waiting_requests() {
    let options = MuxOptions { streams_per_connection: 200, ..SMALL };
    let mut rig = Rig::<MuxFixed<2, 1, { stream_words(64) }>>::new(options);
    rig.establish();
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(rig.stream());
        rig.establish();
    }
    assert_eq!(rig.state().open, 2, "there is no place for a third");
    let _waiter = rig.waiter();
    assert!(matches!(rig.acquire(), Err(AcquireError::Busy { .. })), "nor for a second that waits");
    for stream in streams {
        rig.answer(stream);
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
        (MuxOptions { backoff_min: Duration::ZERO, ..SMALL }, "backoffMinMS is 0, but must be at least 1"),
        (MuxOptions { backoff_min: Duration::from_micros(999), ..SMALL }, "backoffMinMS is 0, but must be at least 1"),
        (
            MuxOptions { backoff_max: Duration::from_millis(999), ..SMALL },
            "backoffMaxMS is 999, but must be at least backoffMinMS",
        ),
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
    let mut rig = rig(SMALL);
    assert!(!rig.mux.is_closed());
    rig.mux.close(rig.now, &mut rig.events);
    assert!(rig.mux.is_closed());
}

#[test]
fn the_oldest_of_equally_busy_connections_takes_the_request() {
    let local = HostOptions { core_connections: 3, ..SMALL.local };
    let mut rig = rig(MuxOptions { local, ..SMALL });
    rig.establish();
    let streams: Vec<_> = (0..6).map(|_| rig.stream()).collect();
    let order: Vec<_> = streams.iter().map(Stream::conn).collect();
    assert_eq!(order[..3], order[3..], "in turn, and again in the same order");
    let mut open = Vec::new();
    rig.mux.for_each_conn(|conn, in_flight, takes| {
        assert_eq!((in_flight, takes), (2, true));
        open.push(conn);
    });
    assert_eq!(order[..3], open, "the oldest first");
}
