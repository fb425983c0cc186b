//! The kinds of operation of a multiplexed pool, its host and its peers.

kinds! {
    /// A request.
    Acquire = 1,
    /// A request with a deadline, perhaps one that has passed.
    AcquireDeadline = 2,
    /// Many requests in a row.
    Burst = 6,
    /// Claims the outcome of a request that waited.
    Claim = 1,
    /// Claims what was claimed or cancelled before.
    ClaimUsedUp = 8,
    /// Cancels a request that waits.
    CancelWaiting = 3,
    /// Cancels a request that was granted and not claimed.
    CancelGranted = 3,
    /// Cancels a request that failed and was not claimed.
    CancelFailed = 3,
    /// Cancels what was claimed or cancelled before.
    CancelUsedUp = 8,
    /// Writes a request.
    Write = 1,
    /// Gives up a request before it was written.
    GiveUpUnwritten = 4,
    /// Gives up a request that was written.
    GiveUp = 2,
    /// Releases the stream of another pool.
    ReleaseForeign = 8,
    /// A reply to a request that was written: any of them, so out of order.
    Reply = 1,
    /// Replies to many requests in a row.
    ReplyMany = 4,
    /// The late reply to a request that was given up.
    ReplyLate = 2,
    /// The answer of a peer that was asked whether it is there.
    ReplyHeartbeat = 1,
    /// Takes a reply, and releases the stream.
    Take = 1,
    /// An attack: one more reply to a request that is answered and not taken.
    ReplyTwice = 20,
    /// An attack: a reply by an id that was used and is free.
    ReplyFreed = 20,
    /// An attack: a reply to a request before it was written.
    ReplyUnwritten = 20,
    /// An attack: a reply by any id, perhaps one that nobody was told of yet.
    ReplyAny = 20,
    /// An attack: a reply by an id that no connection has.
    ReplyOutOfRange = 20,
    /// A reply on a connection that is closed, or not yet there.
    ReplyStale = 8,
    /// Takes one action.
    PollAction = 1,
    /// Takes all actions.
    Drain = 1,
    /// A connection is established.
    Established = 1,
    /// A connection could not be established.
    EstablishFailed = 4,
    /// News of a connection that is not being established.
    LateNews = 6,
    /// A connection fails.
    Failed = 8,
    /// Puts other options in force.
    Reconfigure = 8,
    /// The host is to be ignored, or is not any more.
    Ignore = 20,
    /// Closes the pool.
    Close = 100,
    /// Goes to the instant at which something is due.
    TimeExact = 1,
    /// Goes to just before that.
    TimeBefore = 3,
    /// Goes beyond it.
    TimePast = 3,
    /// Time goes on, and the pool is not called.
    TimeOnly = 3,
    /// The clock goes back.
    TimeBack = 8,
    /// A call although nothing need be due.
    Tick = 4,
}
