//! What must hold for every pool (P) and every monitor (S), whatever happens to them: tests, models and simulators name these by number.
//!
//! Requirements of MongoDB's specifications have ids of their own (CMAP, MON, SDAM, LOG). Those below say the same in other words
//! where that makes them easier to check after every single step, and add what no specification says: that nothing is lost, that
//! nothing goes on for ever, that time is exact. "Step" is one call of the machine.
//!
//! # Pools: counts
//!
//! - P1: the counts that a pool reports are those that its events add up to.
//! - P2: there are never more connections than maxPoolSize, not even within a step; 0 is no limit.
//! - P3: no more than maxConnecting are being established, for waiters and in the background together.
//! - P4: a ready pool has minPoolSize connections, or is establishing the next, or waits after a failure; its background makes no more.
//! - P5: a connection is in one state, has one owner, and ends once.
//! - P6: connections are numbered 1, 2, 3, ..; no number comes again.
//! - P7: a check-in of what is not checked out from this pool is an error and changes nothing.
//!
//! # Pools: waiters
//!
//! - P8: a check-out ends once: granted, failed, or cancelled.
//! - P9: first come, first served.
//! - P10: nobody waits while there is a connection to be had, or leave to create one.
//! - P11: a waiter that is cancelled is gone at once, and the next is served in that step.
//! - P12: the connection that was being established for it goes on, to the next waiter or to those available.
//! - P13: a grant that nobody took goes back in the step that cancels it.
//! - P14: a returned connection serves who waits for leave to create one.
//! - P15: perished connections that a check-out meets are closed and passed over.
//! - P16: a check-in is taken in every state; no waiter is in its way.
//! - P17: an established connection is there for waiters before the place that it frees lets another be created.
//!
//! # Pools: time
//!
//! - P18: nothing times out early.
//! - P19: nothing that is due is left over by a step.
//! - P20: `poll_timeout` is the earliest thing that is due, exactly; `None` when nothing is.
//! - P21: who is ready at the very instant of a deadline is late.
//! - P22: the limit on waiting holds for whatever is waited for; 0 is none.
//! - P23: who timed out has left the queue, and the next is served in that step.
//! - P24: an establishment that took too long, as its host says, frees its place and fails its waiter.
//! - P25: a clock that jumps, back or to the end of time, breaks nothing.
//! - P26: an idle connection is not closed before its time and not handed out after it.
//!
//! # Pools: events
//!
//! - P27: of a connection: created, ready, checked out and in any number of times, closed.
//! - P28: of a check-out: started, then one end.
//! - P29: of a pool: created, then ready and cleared by turns, closed; nothing is told twice.
//! - P30: with an interrupting clear: the pool is cleared, pending connections are closed, their check-outs fail.
//! - P31: reasons are true.
//! - P32: durations are those between the events that they span.
//! - P33: after its end only the end of what was in use is told, and that check-outs fail.
//!
//! # Pools: generations and the end
//!
//! - P34: generations only rise, by one for each clear; a connection keeps the one that it began with.
//! - P35: a stale connection is never handed out.
//! - P36: one that becomes stale while it is established is closed when it is there, and never handed out.
//! - P37: a new pool is paused and empty, and fills nothing.
//! - P38: a paused pool refuses check-outs at once, with an error that may be retried, and creates nothing.
//! - P39: a clear fails all waiters in its own step, in their order.
//! - P40: an interrupting clear reaches each older connection in use once, and no newer one.
//! - P41: late news of a connection that is gone changes nothing.
//! - P42: closing ends what is available and who waits; what is in use ends when it comes back; there is no way back.
//! - P43: after the end and all returns nothing is left: no count, no waiter, no deadline, nothing owed.
//! - P44: a clear makes background work due at once; that work does what can be done and waits for nothing.
//! - P45: a clear of one service touches no other; a service without connections is forgotten.
//! - P46: the overload labels are on errors of the network before authentication, and on no others; such errors clear nothing.
//!
//! # Pools: as a whole
//!
//! - P47: any call in any state with any id: no panic but for misuse that is documented, and no answer to nonsense.
//! - P48: work and memory are bounded by what changes and by the options; a warm check-out allocates nothing.
//! - P49: the same inputs give the same outputs.
//! - P50: calls that change nothing change nothing: looking at the clock more often, check-outs that are cancelled in the queue.
//! - P51: when faults stop, every check-out that waits has its end soon.
//! - P52: with a limit on waiting, even if the server never answers.
//! - P53: a server that always fails is not dialed in a hot loop.
//! - P54: one connection that hangs for ever stops no other.
//!
//! # Monitors
//!
//! - S1: one check of a server at a time, whatever other servers do.
//! - S2: each heartbeat that started succeeds or fails, once, with the same `awaited`.
//! - S3: half a second lies between a check's end and the next one's start, except in a stream, and for the one retry at once.
//! - S4: a polled server that nobody asks for is checked heartbeatFrequencyMS after the last check's end.
//! - S5: a request moves the next check forward, to what S3 allows; during a check it counts for nothing.
//! - S6: the retry at once is for network errors on a server that was known, once.
//! - S7: a failed check makes the server Unknown and then clears its pool, with interruption only after a timeout; nobody sees half of it.
//! - S8: a good check makes the pool of a server that data can be read from ready, and selectors are woken last.
//! - S9: a reply with an older topologyVersion of the same process is ignored.
//! - S10: an error of an older generation of the pool changes nothing.
//! - S11: an error that tells of a change of state makes the server Unknown and asks for a check; only those of a shutdown clear its pool.
//! - S12: an operation's timeout says nothing of the server; its other network errors make it Unknown, clear its pool and cancel the check.
//! - S13: round-trip times: the average moves by a fifth, the minimum is of the last ten, both are forgotten after a failed check; streamed replies
//!   do not count.
//! - S14: the connection for round-trip times is there only while the server streams.
//! - S15: in a stream: both or neither of topologyVersion and maxAwaitTimeMS, nothing is written before the last reply, one read at a time.
//! - S16: a check has connectTimeoutMS, an awaited reply heartbeatFrequencyMS besides; 0 is without end.
//! - S17: monitors do not authenticate; the handshake's reply is the check.
//! - S18: a cancelled check closes its connection and waits; after the close nothing is due, nothing owed, and every check has its end.
//! - S19: a healthy server is known within a check and a heartbeat.
//! - S20: a dead server costs no more than two dials in half a second.
//! - S21: P20, P47 and P49 for monitors.
