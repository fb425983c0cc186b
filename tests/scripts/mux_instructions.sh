#!/bin/sh
# Instructions that the client's process executes for one request with 1,024 in flight on one connection, counted by callgrind: N requests and 2N are made
# of a fake server in a process of its own, and what starting and ending cost falls out of the difference. Prints a table and fails when the aim is missed.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v valgrind >/dev/null 2>&1; then
    echo "skipped: mux_instructions (valgrind is not installed)"
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
binary=$(cargo bench -p poolhouse-smol --bench mux --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p')
times=20000

work=$(mktemp -d)
mkfifo "$work/in"
"$binary" server <"$work/in" >"$work/out" &
server=$!
exec 3>"$work/in"
trap 'exec 3>&-; wait "$server"; rm -r "$work"' EXIT
while ! grep -q : "$work/out"; do
    kill -0 "$server"
    sleep 0.1
done
address=$(cat "$work/out")

count() {
    SMOL_THREADS=1 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" requests "$1" 1024 "$address" "$2" 2>&1 |
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
show bare 100000 "the floor: nothing but the bytes"
show futures 100000 "the least that gives each request a future: executor, waker, body"
show session 3700 "Session, version 4"
show session5 4200 "Session, version 5"
show scylla 100000 "the scylla crate on tokio"
exit "$failed"
