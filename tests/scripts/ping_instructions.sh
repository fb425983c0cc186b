#!/bin/sh
# Counts by callgrind the instructions that the client's process executes for one ping: N
# operations, then 2N, with a fake server in a separate process, so the difference excludes the cost
# of starting and ending. The baseline is the same bytes over a bare socket: executor and reactor.
# Prints a table, and fails if a target is missed.
set -eu
cd "$(dirname "$0")/../.."
. tests/scripts/callgrind.sh
need_valgrind ping_instructions
cargo build --quiet --release -p poolhouse-hosted --bin fake_server
binary=$(bench_of poolhouse-smol ping)
times=2000
export SMOL_THREADS=1
pin="taskset -c 0"
serve mongodb $pin "${CARGO_TARGET_DIR:-target}/release/fake_server"
address=$(echo "$said" | sed -n 's|mongodb://\([^/]*\)/.*|\1|p')

measured() {
    callgrind "$binary" instructions "$1" "$address" "$2"
}

show own 100000 "the floor: a bare socket of async-io"
show raw 6000 "client: check-out, ping written and read in place, check-in"
show limited 6000 "the same with a time limit"
show bson 100000 "client: documents of the bson crate"
exit "$failed"
