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

# Installs the wheels of requirements/NAME.txt into a virtual environment. The list has every package
# that is needed, and the hashes of its files: a file with another hash is not installed, and nothing
# is built, because a build would fetch tools without a hash. To make the list (with pip-tools):
#
#   pip-compile --generate-hashes --no-annotate --no-header --strip-extras -o NAME.txt - <<<'PACKAGE==VERSION'
install_wheels() { # folder, NAME
    local list=$scripts/requirements/$2.txt
    may_install "$2"
    : >"$log"
    command -v python3 >/dev/null || give_up 'python3 is not installed'
    [[ -x $1/bin/pip ]] || python3 -m venv --clear "$1" >>"$log" 2>&1 ||
        give_up 'python3 has no venv (Debian: apt-get install python3-venv)'
    timeout 600 "$1/bin/pip" install --quiet --no-input --disable-pip-version-check --force-reinstall --only-binary :all: \
        --require-hashes --requirement "$list" >>"$log" 2>&1 </dev/null && return
    ! grep -q 'DO NOT MATCH THE HASHES' "$log" || give_up "a file of PyPI does not have its hash in $list: see $log"
    give_up "pip could not install $list: $(last_line)"
}
