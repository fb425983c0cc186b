#!/bin/sh
# Instructions that the client's process executes for one ping, counted by callgrind: N operations and 2N are run
# against a fake server in a process of its own, and what starting and ending cost falls out of the difference. The floor is
# the same bytes over a bare socket: executor and reactor. Prints a table and fails when an aim is missed.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v valgrind >/dev/null 2>&1; then
    echo "skipped: ping_instructions (valgrind is not installed)"
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
cargo build --quiet --release -p poolhouse-tests --bin fake_server
binary=$(cargo bench -p poolhouse-smol --bench ping --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p')
times=2000

work=$(mktemp -d)
mkfifo "$work/in"
taskset -c 0 "${CARGO_TARGET_DIR:-target}/release/fake_server" <"$work/in" >"$work/out" &
server=$!
exec 3>"$work/in"
trap 'exec 3>&-; wait "$server"; rm -r "$work"' EXIT
while ! grep -q mongodb "$work/out"; do
    kill -0 "$server"
    sleep 0.1
done
address=$(sed -n 's|mongodb://\([^/]*\)/.*|\1|p' "$work/out")

count() {
    SMOL_THREADS=1 taskset -c 0 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" instructions "$1" "$address" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

failed=0
show() { # case, aim, what it is
    one=$(count "$1" "$times")
    two=$(count "$1" $((times * 2)))
    each=$(((two - one) / times))
    verdict=ok
    if [ "$each" -le 0 ] || [ "$each" -gt "$2" ]; then verdict="MISSED" failed=1; fi
    printf '%-8s %6d   aim <= %-6d %-7s %s\n' "$1" "$each" "$2" "$verdict" "$3"
}
show own 100000 "the floor: a bare socket of async-io"
show raw 6000 "client: check-out, ping written and read in place, check-in"
show limited 6000 "the same with a time limit"
show bson 100000 "client: documents of the bson crate"
exit "$failed"
