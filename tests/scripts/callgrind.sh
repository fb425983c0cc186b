# Counts instructions by callgrind: N cycles are run, then 2N, so the difference excludes the cost
# of starting and ending. To be sourced by scripts that define `measured CASE TIMES`, which runs
# this number of cycles of a case under `callgrind`, and set `times`.

need_valgrind() { # what is skipped without it
    valgrind=$(tests/scripts/valgrind) && return
    echo "skipped: $1 (no valgrind)"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

# The command prefix that starts a program.
pin=
callgrind() { # program and arguments
    $pin "$valgrind" --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

failed=0
show() { # case, aim, what it is
    one=$(measured "$1" "$times")
    two=$(measured "$1" $((times * 2)))
    each=$(((two - one) / times))
    verdict=ok
    if [ "$each" -le 0 ] || [ "$each" -gt "$2" ]; then verdict="MISSED" failed=1; fi
    printf '%-10s %6d   target <= %-6d %-7s %s\n' "$1" "$each" "$2" "$verdict" "$3"
}

# Builds a bench, and prints the path of its binary.
bench_of() { # package, bench
    cargo bench -p "$1" --bench "$2" --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p'
}

# Starts a server that ends when its standard input is closed, and waits until its output contains a
# pattern. Stores that line in `said`.
serve() { # pattern, program and arguments
    pattern=$1
    shift
    work=$(mktemp -d)
    mkfifo "$work/in"
    "$@" <"$work/in" >"$work/out" &
    server=$!
    exec 3>"$work/in"
    trap 'exec 3>&-; wait "$server"; rm -r "$work"' EXIT
    while ! grep -q "$pattern" "$work/out"; do
        kill -0 "$server"
        sleep 0.1
    done
    said=$(cat "$work/out")
}
