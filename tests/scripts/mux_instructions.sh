#!/bin/sh
# Counts by callgrind the instructions that the client's process executes for one request with 1,024
# in flight on one connection: N requests, then 2N, to a fake server in a separate process, so the
# difference excludes the cost of starting and ending. Prints a table, and fails if the target is
# missed.
set -eu
cd "$(dirname "$0")/../.."
. tests/scripts/callgrind.sh
need_valgrind mux_instructions
binary=$(bench_of poolhouse-smol mux)
times=20000
export SMOL_THREADS=1
serve : "$binary" server

measured() {
    callgrind "$binary" requests "$1" 1024 "$said" "$2"
}

show bare 100000 "the floor: nothing but the bytes"
show futures 100000 "the least that gives each request a future: executor, waker, body"
show session 3000 "Session, version 4"
show session5 3700 "Session, version 5"
show chosen 3100 "Session, version 4, each request names its host, of 1,000"
show all 1600 "Session::request_all, version 4"
exit "$failed"
