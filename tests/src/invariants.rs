//! Invariants of every pool (P), multiplexed pool (M) and monitor (S): tests, models and simulators
//! refer to them by number.
//!
//! Requirements of MongoDB's specifications have separate ids (CMAP, MON, SDAM, LOG). The
//! invariants below restate them in a form that can be checked after every single step, and add
//! properties that no specification requires: no loss, no endless activity, exact times. A "step"
//! is one call of the state machine.
//!
//! # Pools: counts
//!
//! - P1: the counts that a pool reports match the sum of its events.
//! - P2: there are never more connections than maxPoolSize, not even within a step; 0 is no limit.
//! - P3: at most maxConnecting connections are being established, for waiters and in the background
//!   together.
//! - P4: a ready pool has minPoolSize connections, or is establishing the next, or is in the delay
//!   after a failure; background work creates no more than that.
//! - P5: a connection is in one state, has one owner, and ends once.
//! - P6: connections are numbered 1, 2, 3, ..; no number is reused.
//! - P7: a check-in of a connection that is not checked out from this pool is an error and changes
//!   nothing.
//!
//! # Pools: waiters
//!
//! - P8: a check-out ends once: granted, failed, or cancelled.
//! - P9: first come, first served.
//! - P10: no waiter waits while a connection is available or may be created.
//! - P11: a cancelled waiter is removed at once, and the next is served in that step.
//! - P12: the connection that was being established for a cancelled waiter is completed, and serves
//!   the next waiter or becomes available.
//! - P13: an unclaimed grant is returned in the step that cancels it.
//! - P14: a returned connection serves a waiter that waits for permission to create one.
//! - P15: perished connections that a check-out finds are closed and skipped.
//! - P16: a check-in is accepted in every state; waiters do not delay it.
//! - P17: an established connection serves waiters before the slot that it frees allows another to
//!   be created.
//!
//! # Pools: time
//!
//! - P18: nothing times out early.
//! - P19: a step leaves no due work undone.
//! - P20: `poll_timeout` is exactly the earliest due time; `None` if nothing is due.
//! - P21: a waiter that could be served exactly at its deadline has timed out.
//! - P22: the limit on waiting applies to all reasons for waiting; 0 is no limit.
//! - P23: a timed-out waiter is removed from the queue, and the next is served in that step.
//! - P24: an establishment that the driver reports as timed out frees its slot and fails its
//!   waiter.
//! - P25: a clock that jumps, backwards or to the end of time, violates no invariant.
//! - P26: an idle connection is not closed before its time and not handed out after it.
//!
//! # Pools: events
//!
//! - P27: of a connection: created, ready, checked out and in any number of times, closed.
//! - P28: of a check-out: started, then one end.
//! - P29: of a pool: created, then ready and cleared alternately, closed; no event is repeated.
//! - P30: with an interrupting clear: the pool is cleared, pending connections are closed, their
//!   check-outs fail.
//! - P31: the reasons in events are the actual ones.
//! - P32: durations are those between the events that they span.
//! - P33: after a pool is closed, the only events are the closing of connections that were in use,
//!   and failures of check-outs.
//!
//! # Pools: generations and the end
//!
//! - P34: generations only increase, by one for each clear; a connection keeps its initial
//!   generation.
//! - P35: a stale connection is never handed out.
//! - P36: a connection that becomes stale while it is established is closed once established, and
//!   never handed out.
//! - P37: a new pool is paused and empty, and creates no connections.
//! - P38: a paused pool refuses check-outs at once, with a retryable error, and creates nothing.
//! - P39: a clear fails all waiters in its own step, in their order.
//! - P40: an interrupting clear interrupts each older connection in use once, and no newer one.
//! - P41: results for a stale connection id change nothing.
//! - P42: closing a pool closes available connections and fails waiters; connections in use are
//!   closed when they are checked in; a closed pool stays closed.
//! - P43: after the close and all check-ins a pool has no counts, waiters, deadlines or effects
//!   left.
//! - P44: a clear makes background work due at once; that work does everything possible without
//!   waiting.
//! - P45: a clear of one service affects no other; a service without connections is removed.
//! - P46: the overload labels are on network errors before authentication, and on no others; such
//!   errors clear nothing.
//!
//! # Pools: as a whole
//!
//! - P47: any call in any state with any id: no panic except for documented misuse, and no effect
//!   of invalid input.
//! - P48: work and memory are bounded by the extent of changes and by the options; a warm check-out
//!   does not allocate.
//! - P49: the same inputs result in the same outputs.
//! - P50: calls without effect change nothing: reading the clock more often, check-outs that are
//!   cancelled in the queue.
//! - P51: after faults stop, every waiting check-out ends soon.
//! - P52: with a limit on waiting it also ends if the server never answers.
//! - P53: a server that always fails is not dialed in a hot loop. In any second, at most as many
//!   connections are opened in the background as are kept, however fast they are closed.
//! - P54: one connection that hangs forever blocks no other.
//!
//! # Sessions
//!
//! - P55: two writes never have the same session and transaction number, and the attempts of one
//!   write always do: it is executed once. So is a transaction, whose commands have one number.
//! - P57: a session has one command at a time: no two tasks use it.
//! - P58: all commands of a cursor are sent to the server that has it. A client that is closed kills the
//!   cursors that were dropped before.
//!
//! # Commands
//!
//! - P56: each command that was started has one event of its end.
//! - P59: each selection of a server that was started has one event of its end, and so has each wait, during
//!   one selection. Only the first wait of an operation is new. Its command is sent to the server that was
//!   selected last.
//! - P60: a write without an acknowledgement succeeds once all of its bytes are written, has no reply and
//!   no session, and is refused in a session.
//! - P61: a request on a session is executed in a keyspace that the session had between the start of the
//!   request and its execution. The keyspace changes when a call for it succeeds; a call that fails or is
//!   dropped changes nothing.
//! - P62: a session that finds its cluster has a control connection, and the nodes of the cluster as its
//!   hosts, within a bound after faults stop. Then a request with a location is executed by a node that has
//!   the data. The first event of a node adds it, and it is removed once.
//!
//! # Multiplexed pools
//!
//! - M1: a stream id has at most one request at a time, a connection no more requests than its
//!   limit, and one heartbeat.
//! - M2: a reply answers the request that has its id; any other reply closes the connection.
//! - M3: the id of an abandoned request stays reserved until its late reply; a connection with too
//!   many of them, or from before a replacement of all connections, is retired.
//! - M4: a request ends once, with the outcome that its connection or the queue gave it.
//! - M5: no request waits while a connection accepts requests or may be opened.
//! - M6: a connection takes the steps of its life in order; after the close of the pool nothing is
//!   left.
//!
//! # Monitors
//!
//! - S1: one check of a server at a time, independent of other servers.
//! - S2: each heartbeat that started succeeds or fails, once, with the same `awaited`.
//! - S3: half a second lies between a check's end and the next one's start, except in a stream, and
//!   for the one immediate retry.
//! - S4: a polled server without requested checks is checked heartbeatFrequencyMS after the last
//!   check's end.
//! - S5: a request moves the next check forward, to the earliest time that S3 allows; during a
//!   check it has no effect.
//! - S6: the immediate retry is for network errors on a server that was known, once.
//! - S7: a failed check makes the server Unknown and then clears its pool, with interruption only
//!   after a timeout; observers never receive only one of both.
//! - S8: a successful check makes the pool of a data-bearing server ready, and selectors are woken
//!   last.
//! - S9: a reply with an older topologyVersion of the same process is ignored.
//! - S10: an error of an older generation of the pool changes nothing.
//! - S11: a state-change error makes the server Unknown and requests a check; only those of a
//!   shutdown clear its pool.
//! - S12: an operation's timeout does not affect the server; its other network errors make it
//!   Unknown, clear its pool and cancel the check.
//! - S13: round-trip times: the average moves by a fifth, the minimum is of the last ten, both are
//!   reset after a failed check; streamed replies do not count.
//! - S14: the connection for round-trip times exists only while the server streams.
//! - S15: in a stream: both or neither of topologyVersion and maxAwaitTimeMS, nothing is written
//!   before the last reply, one read at a time.
//! - S16: a check has connectTimeoutMS, an awaited reply additionally heartbeatFrequencyMS; 0 is no
//!   limit.
//! - S17: monitors do not authenticate; the handshake's reply is the check.
//! - S18: a cancelled check closes its connection and waits; after the close nothing is due, no
//!   effect is pending, and every check has ended.
//! - S19: a healthy server is known within a check and a heartbeat.
//! - S20: a dead server costs no more than two dials in half a second.
//! - S21: P20, P47 and P49 for monitors.
