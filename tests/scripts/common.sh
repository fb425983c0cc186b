# What the scripts that provide a program share. To be sourced.
#
# Such a script prints the path of a program, and installs it below the target folder if it is
# missing. On failure it prints the reason, in one line on standard error, and its exit status is 1.
# With POOLHOUSE_INSTALL=no it installs nothing.
set -uo pipefail

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$scripts/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
[[ $target == /* ]] || target=$root/$target
log=$target/run/provision-$(basename "$0").log

give_up() {
    echo "$1" >&2
    exit 1
}

mkdir -p "$target/run" || give_up "cannot write to $target"

last_line() { grep -v '^[[:space:]]*$' "$log" | tail -n 1; }

may_install() { # what is missing
    [[ ${POOLHOUSE_INSTALL:-} != no ]] || give_up "$1 is not installed"
}

# Installs wheels of PyPI into a virtual environment.
install_wheels() { # folder, wheels
    may_install "${@: -1}"
    : >"$log"
    command -v python3 >/dev/null || give_up 'python3 is not installed'
    [[ -x $1/bin/pip ]] || python3 -m venv --clear "$1" >>"$log" 2>&1 ||
        give_up 'python3 has no venv (Debian: apt-get install python3-venv)'
    timeout 600 "$1/bin/pip" install --quiet --no-input --disable-pip-version-check "${@:2}" >>"$log" 2>&1 </dev/null ||
        give_up "pip could not install ${*:2}: $(last_line)"
}
