#!/usr/bin/env python3
"""Activates the mutants of core, wire, auth and cql one after another, and checks whether a test
fails. tests/scripts/mutants calls it.

    run.py list               prints the numbers of mutants
    run.py prepare            writes the copy until it compiles, and builds its tests
    run.py meet               records which tests execute which mutants, and the duration of each test
    run.py try [--sample N] [--seed S] [--shard K/N] [--minutes M] [--jobs J] [FILE]..   activates them
    run.py report MUTANTS.MD  prints the results

The variable FOLDER names the folder. Results are stored there as JSON, so each step can be repeated
alone.
"""

import collections
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

FOLDER = pathlib.Path(os.environ["FOLDER"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = FOLDER / "copy"
# The crates with mutants, and their folders. tests/mutants/rustc and tests/scripts/mutants also
# list them.
CRATES = {
    "poolhouse-core": "core", "poolhouse-wire": "core/wire", "poolhouse-auth": "core/auth",
    "poolhouse-cql": "core/cql",
}
PACKAGES = [part for crate in CRATES for part in ("-p", crate)]
# The names of their unit test programs.
UNIT = {crate.replace("-", "_") for crate in CRATES}
# Suites that check these crates in addition to their unit tests, without sockets and clocks; the
# fastest first, as measured.
SUITES = ["bson_corpus", "cmap", "corpus", "cql_wire", "decompress", "monitor", "scram", "sdam", "selection", "selection_model", "simulate",
    "simulate_mux", "topology_model", "wire", "network"]
# A test that computes for TIMES as long as usual is in an endless loop; one that waits for
# WAIT_SECONDS waits forever.
TIMES, SECONDS, WAIT_SECONDS = 3, 3, 20
MEMORY = int(os.environ.get("POOLHOUSE_MUTANTS_KIB", 8 << 20)) << 10
SEEDS = os.environ.get("POOLHOUSE_SEEDS", "400")
# A test that computes or lasts longer than this many seconds is not used; tests that are slow by
# their nature are not tried.
LONGEST = 20, 120
EXHAUSTIVE = re.compile("^every |twice")
# Tests run in batches in one process, because most do not fail.
BATCH = 60


def load(name):
    return json.loads((FOLDER / name).read_text())


def store(name, value):
    partial = FOLDER / f"{name}.part"
    partial.write_text(json.dumps(value) + "\n")
    partial.rename(FOLDER / name)


def environment():
    return {
        **os.environ, "CARGO_TARGET_DIR": str(FOLDER / "build"), "RUSTC_WORKSPACE_WRAPPER": str(ROOT / "tests/mutants/rustc"),
        # Everything is built once.
        "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_DEBUG": "0",
    }


def messages(step, *arguments):
    # Further optimization would cost more than it saves.
    level = [part for crate in (*CRATES, "poolhouse-tests") for part in ("--config", f"profile.dev.package.{crate}.opt-level=1")]
    command = ["cargo", step, *level, *arguments, "--all-features", "--message-format=json"]
    done = subprocess.run(command, cwd=COPY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done, found


# Preparing.


def owners(message, regions):
    """Returns the mutants whose bytes contain the primary spans of an error, or else its secondary spans."""
    own, beside = set(), set()
    for span in message["spans"]:
        while span.get("expansion"):
            span = span["expansion"]["span"]
        around = [one for one in regions.get(span["file_name"], []) if one[0] <= span["byte_start"] and span["byte_end"] <= one[1]]
        if around:
            (own if span["is_primary"] else beside).add(min(around, key=lambda one: one[1] - one[0])[2])
    return own or beside


def prepare():
    mutants = load("list.json")
    files = {mutant["file"] for mutant in mutants}
    for crate, folder in CRATES.items():
        if not any(file.startswith(f"{folder}/src/") for file in files):
            sys.exit(f"cargo-mutants lists no mutant of {crate}: see .cargo/mutants.toml")
    unviable = set()
    while True:
        (FOLDER / "unviable").write_text("\n".join(map(str, sorted(unviable))))
        tool = [FOLDER / "tool/debug/poolhouse-mutants", FOLDER / "list.json", FOLDER / "unviable", ROOT, COPY, FOLDER / "regions.json"]
        impossible = subprocess.run(tool, stdout=subprocess.PIPE, text=True, check=True).stdout
        told = dict(line.split(" ", 1) for line in impossible.splitlines())
        others = {number: reason for number, reason in told.items() if not reason.startswith("unviable")}
        if others:
            sys.exit(f"mutants that could not be written: {others}")
        for folder in CRATES.values():
            # A crate with mutants was just written.
            file = f"{folder}/src/lib.rs"
            source = ((COPY if file in files else ROOT) / file).read_text()
            (COPY / file).write_text(source + "\npub(crate) mod mutant;\n")
            (COPY / folder / "src/mutant.rs").write_text((ROOT / "tests/mutants/asleep.rs").read_text())
        done, said = messages("check", *PACKAGES)
        if done.returncode == 0:
            break
        regions = load("regions.json")
        found = set()
        for message in (one["message"] for one in said if one["reason"] == "compiler-message"):
            if message["level"] != "error" or not message["spans"]:
                continue
            of = owners(message, regions) or set().union(*(owners(child, regions) for child in message["children"]))
            if not of and (message["code"] or {}).get("code") == "E0004":
                # Without this arm, the match is not exhaustive.
                span = message["spans"][0]
                arms = (one for one in regions[span["file_name"]] if mutants[one[2] - 1]["genre"] == "MatchArm")
                of = {min(one for one in arms if one[0] > span["byte_end"])[2]}
            if not of:
                sys.exit(f"an error that no mutant causes:\n{message['rendered']}")
            found |= of
        if not found - unviable:
            sys.exit(done.stderr[-4000:])
        unviable |= found
    store("unviable.json", sorted(unviable | {int(number) for number in told}))
    programs = {}
    suites = [part for suite in SUITES for part in ("--test", suite)]
    for which in ([*PACKAGES, "--lib"], ["-p", "poolhouse-tests", "--lib", *suites]):
        done, said = messages("test", *which, "--no-run")
        if done.returncode != 0:
            sys.exit(done.stderr[-4000:])
        for one in said:
            if one["reason"] == "compiler-artifact" and one["profile"]["test"] and one["executable"]:
                programs[one["target"]["name"]] = [one["executable"], os.path.dirname(one["manifest_path"])]
    store("programs.json", programs)


# Running.


def run(program, tests, seconds, wait, **variables):
    """Runs tests of a program. Returns whether they pass, or None if they do not end, and their processor time.

    The processor time is limited to `seconds`, the elapsed time to `wait`. Tests that exceed `wait` may
    have been delayed by other processes, so they are repeated once with four times that limit.
    """
    outcome, used = run_once(program, tests, seconds, wait, **variables)
    if outcome == "waited":
        outcome, used = run_once(program, tests, seconds, 4 * wait, **variables)
    return (None if outcome == "waited" else outcome), used


def run_once(program, tests, seconds, wait, **variables):
    """The same without a repetition; returns "waited" if the tests exceeded the elapsed time."""
    path, folder = program
    setting = {"POOLHOUSE_SEEDS": SEEDS, "POOLHOUSE_SHRINK": "0", "RUST_BACKTRACE": "0", "RUST_MIN_STACK": "8388608", **variables}
    env = {**os.environ, **setting}
    env.pop("POOLHOUSE_FIGURES", None)
    limit = math.ceil(seconds)

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    process = subprocess.Popen(
        [path, "--exact", "--test-threads=1", "-q", *tests], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limited,
    )
    end, pause, killed = time.monotonic() + wait, 0.001, False
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            computed = used.ru_utime + used.ru_stime
            if process.returncode == -signal.SIGXCPU:
                return None, computed
            return "waited" if killed else process.returncode == 0, computed
        if time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            end, killed = math.inf, True
        time.sleep(pause)
        pause = min(0.05, pause * 1.2)


def meet():
    programs = load("programs.json")
    scratch = FOLDER / "met"
    known = load("met.json") if (FOLDER / "met.json").exists() else {}

    def of(job):
        name, test = job
        path = scratch.with_name(f"met.{threading.get_ident()}")
        path.unlink(missing_ok=True)
        begun = time.monotonic()
        passed, seconds = run(programs[name], [test], *LONGEST, POOLHOUSE_MUTANTS_MET=str(path))
        lasted = time.monotonic() - begun
        numbers = sorted(map(int, path.read_text().split())) if path.exists() else []
        return {"program": name, "test": test, "passed": bool(passed), "seconds": round(seconds, 3), "lasted": round(lasted, 3), "met": numbers}

    jobs = []
    for name, (path, folder) in programs.items():
        listed = subprocess.run([path, "--list"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
            env={**os.environ, "POOLHOUSE_SEEDS": SEEDS}).stdout
        tests = [line.rsplit(": ", 1)[0] for line in listed.splitlines() if line.endswith(": test")]
        jobs += [(name, test) for test in tests if f"{name} {test}" not in known and not EXHAUSTIVE.search(test)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for count, one in enumerate(pool.map(of, jobs)):
            known[f"{one['program']} {one['test']}"] = one
            if count % 20 == 0:
                store("met.json", known)
    store("met.json", known)
    failed = [name for name, one in known.items() if not one["passed"]]
    seconds = collections.Counter()
    for one in known.values():
        seconds[one["program"]] += one["seconds"]
    print(f"{len(known)} tests, {sum(seconds.values()):.0f} s:", *(f"{name} {took:.1f}" for name, took in seconds.most_common()))
    print("not used, because they fail without mutants:", failed)


def attempts(tests):
    """Returns the order of the tests for a mutant: fast tests in batches, unit tests and those that execute
    few mutants first; then slow tests, each alone."""
    quick, long = collections.defaultdict(list), []
    for one in sorted(tests, key=lambda one: one["seconds"] * (1 + len(one["met"]) / 1000)):
        if one["seconds"] < 0.1:
            quick[one["program"]].append(one)
        else:
            long.append([one])
    cut = [some[start:start + BATCH] for some in quick.values() for start in range(0, len(some), BATCH)]
    return sorted(cut, key=lambda some: (some[0]["program"] not in UNIT, sum(one["seconds"] for one in some))) + long


def wake(number, programs, tests):
    begun = time.monotonic()
    outcome, noticed = "missed", None
    for some in attempts(tests):
        usual, lasted = sum(one["seconds"] for one in some), sum(one["lasted"] for one in some)
        names = [one["test"] for one in some]
        limits = SECONDS + TIMES * usual, WAIT_SECONDS + TIMES * lasted
        passed, _ = run(programs[some[0]["program"]], names, *limits, POOLHOUSE_MUTANT=str(number))
        if passed is False:
            outcome, noticed = "caught", f"{some[0]['program']} {some[0]['test']}" if len(some) == 1 else some[0]["program"]
            break
        if passed is None:
            outcome, noticed = "timeout", some[0]["program"]
            break
    return {"outcome": outcome, "by": noticed, "seconds": round(time.monotonic() - begun, 2), "tests": len(tests)}


def chosen(mutants, arguments):
    numbers = list(range(1, len(mutants) + 1))
    sample, seed, shard, files, minutes, jobs = None, 0, None, [], None, 2
    it = iter(arguments)
    for argument in it:
        if argument == "--sample":
            sample = int(next(it))
        elif argument == "--seed":
            seed = int(next(it))
        elif argument == "--shard":
            shard = tuple(map(int, next(it).split("/")))
        elif argument == "--minutes":
            minutes = float(next(it))
        elif argument == "--only":
            names = set(pathlib.Path(next(it)).read_text().splitlines())
            numbers = [number for number in numbers if mutants[number - 1]["name"] in names]
        elif argument == "--jobs":
            jobs = int(next(it))
        else:
            files.append(argument)
    if files:
        numbers = [number for number in numbers if any(mutants[number - 1]["file"].startswith(file) for file in files)]
    if shard:
        numbers = [number for number in numbers if number % shard[1] == shard[0]]
    # The order is always random, so the mutants that were tried within the time limit are a fair
    # sample.
    random.Random(seed).shuffle(numbers)
    return numbers[:sample], minutes, jobs


def try_all(arguments):
    mutants, unviable, programs = load("list.json"), set(load("unviable.json")), load("programs.json")
    tests = [one for one in load("met.json").values() if one["passed"]]
    meeting = collections.defaultdict(list)
    for one in tests:
        for number in one["met"]:
            meeting[number].append(one)
    numbers, minutes, jobs = chosen(mutants, arguments)
    begun, known = time.monotonic(), load("outcomes.json") if (FOLDER / "outcomes.json").exists() else {}
    # Constants are evaluated when a crate is compiled, so their mutants cannot be activated later.
    constant = {number for number in numbers if not mutants[number - 1]["function"]} - unviable
    order = [number for number in numbers if number not in unviable | constant and str(number) not in known]

    def of(number):
        if minutes is not None and time.monotonic() - begun > 60 * minutes:
            return number, None
        return number, wake(number, programs, meeting[number])

    for number in numbers:
        if number in unviable | constant:
            known[str(number)] = {"outcome": "unviable" if number in unviable else "constant", "by": None, "seconds": 0, "tests": 0}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for count, (number, found) in enumerate(pool.map(of, order)):
            if found:
                known[str(number)] = found
            if count % 50 == 0:
                store("outcomes.json", known)
    store("outcomes.json", known)


# Telling.


def folder_of(mutant):
    """Returns the crate, or the module of core."""
    crate, file = mutant["file"].removeprefix("core/").split("src/", 1)
    return crate.rstrip("/") or re.split(r"[/.]", file)[0]


def list_all():
    folders = collections.Counter(map(folder_of, load("list.json")))
    print("mutants:", folders.total(), *(f"{folder}={count}" for folder, count in folders.most_common()))


def place(name):
    """Returns the name of a mutant: its file and its change, without the line, because lines move."""
    return name.split(":")[0] + ": " + name.split(": ", 1)[1]


def wilson(hits, count):
    """Returns the 95 % confidence interval of a share."""
    if not count:
        return 0.0, 1.0
    z, share = 1.96, hits / count
    middle, spread = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - spread) / (1 + z * z / count), (middle + spread) / (1 + z * z / count)


def report(named):
    mutants, known = load("list.json"), load("outcomes.json")
    named = pathlib.Path(named).read_text()
    count = collections.Counter(one["outcome"] for one in known.values())
    missed = sorted((mutants[int(number) - 1]["name"] for number, one in known.items() if one["outcome"] == "missed"), key=str)
    # A name covers as many mutants as it has entries in the file.
    left, equivalent, survivors = collections.Counter(re.findall(r"`([^`]+)`", named)), [], []
    for name in missed:
        (equivalent if left[place(name)] > 0 else survivors).append(name)
        left[place(name)] -= 1
    viable = len(known) - count["unviable"] - count["constant"]
    unit = sum(1 for one in known.values() if one["outcome"] == "caught" and one["by"].split()[0] in UNIT)
    caught = count["caught"] + count["timeout"]
    low, high = wilson(caught, viable - len(equivalent))
    commit = subprocess.run([ROOT / "tests/scripts/commit"], capture_output=True, text=True, check=True).stdout.strip()
    figures = {
        "commit": commit, "mutants": len(mutants), "tried": len(known), "unviable": count["unviable"], "constants_not_tried": count["constant"], "viable": viable,
        "caught": count["caught"], "caught_by_unit_tests": unit, "timeout": count["timeout"], "missed": len(survivors), "equivalent": len(equivalent),
        "caught_percent": round(100 * caught / max(1, viable - len(equivalent)), 2), "caught_percent_low": round(100 * low, 2),
        "caught_percent_high": round(100 * high, 2), "seconds": round(sum(one["seconds"] for one in known.values())), "survivors": survivors,
    }
    print("mutants:", *(f"{key}={value}" for key, value in figures.items() if key != "survivors"))
    for name in survivors:
        print("missed:", name)
    folders = collections.defaultdict(collections.Counter)
    for number, one in known.items():
        folders[folder_of(mutants[int(number) - 1])][one["outcome"]] += 1
    for folder, outcomes in sorted(folders.items()):
        print(f"{folder}:", *(f"{key}={value}" for key, value in sorted(outcomes.items())))
    folder = os.environ.get("POOLHOUSE_FIGURES")
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        pathlib.Path(folder, "mutants.json").write_text(json.dumps(figures, indent=2) + "\n")
    # An entry of a file that was moved would cover no mutant.
    gone = sorted(file for file in set(re.findall(r"^- `([^`:]+): ", named, re.MULTILINE)) if not (ROOT / file).is_file())
    for file in gone:
        print("tests/mutants.md names a file that does not exist:", file)
    sys.exit(1 if survivors or gone else 0)


if __name__ == "__main__":
    step, *rest = sys.argv[1:]
    match step:
        case "list":
            list_all()
        case "prepare":
            prepare()
        case "meet":
            meet()
        case "try":
            try_all(rest)
        case "report":
            report(*rest)
