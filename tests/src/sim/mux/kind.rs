//! The kinds of operation of a multiplexed pool, its host and its peers.

kinds! {
    /// A request.
    Acquire = 1,
    /// A request with a deadline that may have passed.
    AcquireDeadline = 2,
    /// Many requests in a row.
    Burst = 6,
    /// Asks whether a request would wait for the first connection.
    MustConnect = 3,
    /// Claims the outcome of a waiter.
    Claim = 1,
    /// Claims an outcome that was claimed or cancelled before.
    ClaimUsedUp = 8,
    /// Cancels a waiter.
    CancelWaiting = 3,
    /// Cancels a request that was granted and not claimed.
    CancelGranted = 3,
    /// Cancels a request that failed and was not claimed.
    CancelFailed = 3,
    /// Cancels a request that was claimed or cancelled before.
    CancelUsedUp = 8,
    /// Writes a request.
    Write = 1,
    /// Abandons a request before it was written.
    GiveUpUnwritten = 4,
    /// Abandons a request that was written.
    GiveUp = 2,
    /// Releases the stream of another pool.
    ReleaseForeign = 8,
    /// A reply to any written request, so replies may be out of order.
    Reply = 1,
    /// Replies to many requests in a row.
    ReplyMany = 4,
    /// The late reply to an abandoned request.
    ReplyLate = 2,
    /// The reply to a heartbeat.
    ReplyHeartbeat = 1,
    /// Takes a reply, and releases the stream.
    Take = 1,
    /// An attack: a second reply to an answered request that the host has not taken.
    ReplyTwice = 20,
    /// An attack: a reply with a used id that is free.
    ReplyFreed = 20,
    /// An attack: a reply to a request that was not written.
    ReplyUnwritten = 20,
    /// An attack: a reply with any id, perhaps one that was never used.
    ReplyAny = 20,
    /// An attack: a reply with an id out of range.
    ReplyOutOfRange = 20,
    /// A reply on a connection that is closed or not yet established.
    ReplyStale = 8,
    /// Takes one action.
    PollAction = 1,
    /// Takes all actions.
    Drain = 1,
    /// A connection is established.
    Established = 1,
    /// A connection could not be established.
    EstablishFailed = 4,
    /// A report about a connection that is not being established.
    LateNews = 6,
    /// A connection fails.
    Failed = 8,
    /// A report that the host accepts connections, which may be wrong.
    HostUp = 8,
    /// Changes the options.
    Reconfigure = 8,
    /// The host is set to ignored, or no longer ignored.
    Ignore = 20,
    /// Closes the pool.
    Close = 100,
    /// Advances the time to the next deadline.
    TimeExact = 1,
    /// Advances the time to just before the next deadline.
    TimeBefore = 3,
    /// Advances the time past the next deadline.
    TimePast = 3,
    /// Advances the time without a call of the pool.
    TimeOnly = 3,
    /// The clock jumps back.
    TimeBack = 8,
    /// Calls `handle_timeout` although nothing need be due.
    Tick = 4,
    /// Replaces all connections.
    ReplaceConnections = 8,
}
