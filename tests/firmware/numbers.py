#!/usr/bin/env python3
"""Measures the resources that Poolhouse uses on a Cortex-M4: flash, static RAM, stack, instructions
and wake-ups, and checks that excluded code is not linked.

usage: tests/firmware/numbers.py [--size s|z] [--update | --panics | --wakeups | --map PROGRAM]

Builds runtime-embassy/firmware/size, runs it under QEMU (against mongod if MONGOD names one, else
against the fake server), and prints a table. Builds the examples only for their
sizes. Fails if a figure exceeds the one that runtime-embassy/firmware/numbers.toml contains for the
toolchain by more than 5 % (examples: 25 %), or if excluded code is linked. A figure without such an entry is reported as skipped; with CI=true it fails.

  --size LEVEL   builds with this opt-level: s, the default, or z, which makes smaller and slower
                 programs
  --update       writes the figures into that file instead of comparing them; run it once for each
                 toolchain
  --panics       only lists the locations in our crates' code that can panic
  --wakeups      only counts the wake-ups of idle clients, by mode and interval of their monitors
  --map PROGRAM  only lists the use of a program's flash: by crate and by module, with inlined code
                 at its source, and the largest symbols
"""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIRMWARE = ROOT / "runtime-embassy/firmware"
KEPT = FIRMWARE / "numbers.toml"
TRIPLE = "thumbv7em-none-eabihf"
# Programs by the feature with which they are built.
PROGRAMS = {"": ["base", "machines", "network", "client", "client-idle", "decode", "instructions"], "auth": ["machines-scram", "client-scram", "ram"], "direct": ["client-direct"], "tls": ["client-tls"], "rsa": ["client-rsa"], "p384": ["client-p384"]}
# Examples by the arguments of their build. Those of the generic pool are built without the features of the client.
# `reqwless` is what `http` is compared with.
EXAMPLES = {("-p", "poolhouse-pool-examples", "--features", "reqwless"): ["http", "modbus", "reqwless"], ("-p", "poolhouse-modem"): ["modem"]}
# The cost of a part: the difference between two programs.
PARTS = [
    ("pool + monitor + wire", "machines", "base"),
    ("SCRAM-SHA-256 besides", "machines-scram", "machines"),
    ("pool + monitor + wire + SCRAM", "machines-scram", "base"),
    ("embassy-net: TCP, DHCP", "network", "base"),
    ("client over it", "client", "network"),
    ("client with SCRAM over it", "client-scram", "network"),
    ("direct client with SCRAM over it", "client-direct", "network"),
    ("TLS besides", "client-tls", "client-scram"),
    ("RSA certificates besides", "client-rsa", "client-tls"),
    ("P-384 certificates besides", "client-p384", "client-tls"),
]
# The source folders of our crates.
OURS = [
    ("/core/src/", "poolhouse-core"),
    *((f"/core/{name}/src/", f"poolhouse-{name}") for name in ("wire", "auth", "cql", "driver")),
    ("/runtime-embassy/src/", "poolhouse-embassy"),
]
# Aims of flash by opt-level.
FLASH_AIMS = {
    "s": {"pool + monitor + wire + SCRAM": 54 * 1024, "client with SCRAM over it": 130 * 1024, "direct client with SCRAM over it": 108 * 1024, "TLS besides": 84 * 1024},
    "z": {"pool + monitor + wire + SCRAM": 48 * 1024, "client with SCRAM over it": 112 * 1024, "direct client with SCRAM over it": 95 * 1024, "TLS besides": 78 * 1024},
}
AIMS = {
    ("ram", "pool + monitor + wire + SCRAM"): 4 * 1024,
    ("stack", "client-scram"): 10 * 1024,
    ("instructions", "check-out + check-in"): 600,
    ("panics", "wire"): 0,
    ("panics", "wire, all that decodes"): 0,
    ("panics", "hot path"): 0,
}
GROWTH = 1.05
# An example consists mostly of code that is not ours: its own, texts of panics, the network stack.
EXAMPLES_GROWTH = 1.25
# Tolerance: one frame more or less is chance, and adds up to this number of wake-ups per minute.
WAKEUPS_CHANCE = 6
# A retransmission on a stalled machine adds wake-ups: they are counted up to this many times while
# the count is too high, and the minimum is used.
WAKEUPS_COUNTS = 3
CYCLES = 10_000
IDLE_S = 30
# Those that are only listed: modes and heartbeatFrequencyMS in seconds, for six minutes.
IDLE_MONITORS = [("stream", 10), ("stream", 60), ("poll", 10), ("poll", 60)]
LISTED_IDLE_S = 360
LIMIT_S = 120
# Below the ports that the system assigns to outgoing connections, and outside of those that the
# Rust harness uses.
PORTS = range(10_000, 20_000)
# The number of ports that are tried if they are in use.
PORT_TRIES = 8
# Time limit for a server to start, and to end, in seconds.
SERVER_S = 60
# Without a space, which would split an argument of the firmware in two.
USER, PASSWORD = "ada", "correct-horse"

ALLOCATORS = re.compile(r"^(__rust_alloc|__rust_dealloc|__rust_realloc|__rg_|__rdl_|malloc|calloc|realloc|free|_sbrk|alloc::alloc::)")
FLOATS = re.compile(r"flt2dec|grisu|dragon|core::fmt::float|core::num::dec2flt")
PANICS = re.compile(
    r"^core::panicking::|^core::option::(unwrap|expect)_failed|^core::result::unwrap_failed|^core::slice::index::\w*fail|^core::str::slice_error_fail"
    r"|len_mismatch_fail|^core::cell::panic_|^core::slice::\w*::\w*fail"
)
# Documented panics on misuse by the caller; no input bytes can cause them.
MISUSE = re.compile(r"^poolhouse_cql::decoder::Decoder<S>::walk$")
# The functions that an operation executes if it finds a connection, or waits for one that is
# returned, with everything that is inlined into them.
HOT = re.compile(
    r"::Pool<M>(>)?::(check_out|check_out_with|check_in|check_in_with|claim|grant_newest|return_conn|hand_over)\b|::Server<R>::(check_out|poll_check_out|claim|check_in|watch)\b"
    r"|::(Guard|CheckingOut)<R>|::Connection<R>::(send|receive|flush|read_some|reply|rest|discard_reply|consume)\b"
)


class Failed(Exception):
    """No figure could be measured; the text is the reason."""


def output(*command, **more):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        raise Failed(f"{command[0]}: exit status {done.returncode}")
    return done.stdout


def script(name):
    return ROOT / "tests/scripts" / name


# ----------------------------------------------------------------------------------------- building


def build(level):
    """Returns the ELFs by name, and the toolchain that built them.

    - `level`: the opt-level.
    """
    os.environ["CARGO_PROFILE_RELEASE_OPT_LEVEL"] = level
    toolchain = output(script("firmware"), "--toolchain", TRIPLE).strip()
    elves = {}
    for feature, names in PROGRAMS.items():
        arguments = [word for name in names for word in ("--bin", name)]
        if feature:
            arguments += ["--features", feature]
        folder = pathlib.Path(output(script("firmware"), TRIPLE, "-p", "poolhouse-size", *arguments).strip())
        elves |= {name: folder / name for name in names}
    for arguments, names in EXAMPLES.items():
        folder = pathlib.Path(output(script("firmware"), TRIPLE, *arguments).strip())
        elves |= {name: folder / name for name in names}
    return elves, toolchain


class Tools:
    """Returns the binutils for the target."""

    def __init__(self):
        self.folder = pathlib.Path(output(script("arm-tools")).strip())

    def run(self, name, *arguments, **more):
        return output(self.folder / f"arm-none-eabi-{name}", *arguments, **more)

    def sizes(self, elf):
        """Returns flash and static RAM in bytes; socket buffers are not included."""
        text, data, bss = map(int, self.run("size", elf).splitlines()[1].split()[:3])
        buffers = sum(size for name, kind, size in self.symbols(elf) if kind in "bBdD" and name.endswith("SOCKET_BUFFERS"))
        return text + data, data + bss - buffers

    def symbols(self, elf):
        """Returns name, kind and size of each symbol."""
        lines = (line.split(None, 3) for line in self.run("nm", "-CS", elf).splitlines())
        return [(line[3], line[2], int(line[1], 16)) for line in lines if len(line) == 4]

    def names(self, elf):
        return [line.split(None, 2)[-1] for line in self.run("nm", "-C", elf).splitlines()]

    def instructions(self, elf):
        """Returns address, length in bytes, and target function of each instruction; the target is `None`
        unless it is a call or a jump."""
        found = []
        for line in self.run("objdump", "-dC", elf).splitlines():
            # The name may contain brackets; an offset in it means that the address is not the start
            # of a function.
            match = re.match(r"\s*([0-9a-f]+):\t([0-9a-f ]+?)\s*\t(\S+)(?:\s+[0-9a-f]+ <(.*)>)?", line)
            if match:
                goal = match[4] if match[4] and match[3].startswith("b") and not re.search(r"\+0x[0-9a-f]+$", match[4]) else None
                found.append((int(match[1], 16), len(match[2].replace(" ", "")) // 2, goal))
        return found

    def frames(self, elf, addresses):
        """Returns for each address its functions, with file and line: the innermost inlined one first."""
        text = self.run("addr2line", "-aifC", "-e", elf, *map(hex, addresses)) if len(addresses) < 2000 else self.many_frames(elf, addresses)
        found, frames = {}, []
        lines = iter(text.splitlines())
        for line in lines:
            if re.fullmatch(r"0x[0-9a-f]+", line):
                frames = found.setdefault(int(line, 16), [])
            else:
                path, _, number = next(lines, "").partition(":")
                frames.append((line, path, number.split(" ")[0]))
        return found

    def many_frames(self, elf, addresses):
        half = len(addresses) // 2
        parts = (addresses[:half], addresses[half:])
        return "".join(
            self.run("addr2line", "-aifC", "-e", elf, *map(hex, part)) if len(part) < 2000 else self.many_frames(elf, part) for part in parts
        )


# ------------------------------------------------------------------------------------ where code is


def module(path):
    """Returns the crate and the module of a source file."""
    for folder, crate in OURS:
        if folder in path and "/library/" not in path and "/registry/" not in path:
            return crate, path.split(folder)[1].removesuffix(".rs")
    if "/firmware/" in path:
        return "firmware", path.split("/firmware/")[1].removesuffix(".rs")
    if match := re.search(r"/registry/src/[^/]+/(.+?)-\d[^/]*/", path):
        return match[1], ""
    return "std", ""


def home(frames):
    """Returns the innermost frame outside the standard library; else the outermost."""
    for frame in frames:
        crate, inner = module(frame[1])
        if crate != "std":
            return frame, crate, inner
    return (frames[-1] if frames else ("?", "", "?")), "std", ""


def is_resumption(frame):
    """Returns whether the panic is the one that the compiler adds to every `async fn`, for a poll after its completion.

    Its location is the start of the function, or it has none if it was merged with panics of inlined
    library code.
    """
    name, path, line = frame
    if not name.endswith("{{closure}}"):
        return False
    return line in ("?", "0") or "async " in pathlib.Path(path).read_text().splitlines()[int(line) - 1]


def show_map(tools, elf):
    crates, modules = collections.Counter(), collections.Counter()
    code = tools.instructions(elf)
    frames = tools.frames(elf, [address for address, _, _ in code])
    for address, length, _ in code:
        _, crate, inner = home(frames.get(address, []))
        crates[crate] += length
        if inner:
            modules[f"{crate}: {inner}"] += length
    for title, counts in (("code by crate", crates), ("by module of ours", modules)):
        print(title)
        for name, count in counts.most_common(40):
            print(f"{count:8} {name}")
    print("largest symbols (kind: t code, r constants, b and d RAM)")
    for name, kind, size in sorted(tools.symbols(elf), key=lambda symbol: -symbol[2])[:60]:
        print(f"{size:8} {kind} {name}")


def panic_sites(tools, elf):
    """Returns the calls of panicking functions from our code: (group, function, file) of each."""
    calls = [address for address, _, goal in tools.instructions(elf) if goal and PANICS.search(goal)]
    sites = []
    for frames in tools.frames(elf, calls).values():
        frame, crate, inner = home(frames)
        name = frame[0]
        if crate not in dict(OURS).values():
            continue
        if is_resumption(frame):
            group = "async fn resumed"
        elif crate in ("poolhouse-wire", "poolhouse-cql"):
            group = "wire"
        elif any(HOT.search(outer[0]) for outer in frames):
            group = "hot path"
        else:
            group = "elsewhere"
        sites.append((group, name, f"{crate}: {inner} in {frames[-1][0]}"))
    return sites


# ------------------------------------------------------------------------------------------ running


def run(elf, *arguments, icount=None, network=True, limit_s=LIMIT_S):
    """Returns the numbers that a program prints, by name."""
    more = {"POOLHOUSE_FIRMWARE_SECONDS": str(limit_s)}
    if icount:
        more["POOLHOUSE_FIRMWARE_ICOUNT"] = icount
    if not network:
        more["POOLHOUSE_FIRMWARE_NETWORK"] = "none"
    done = subprocess.run(
        [str(word) for word in (script("run-firmware"), elf, *arguments)], env=os.environ | more,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    if done.returncode != 0:
        raise Failed(f"{elf.name} {' '.join(map(str, arguments))}: exit status {done.returncode}: {done.stdout}{done.stderr}")
    return {name: int(number) for name, number in re.findall(r"^(\w+) +(\d+)$", done.stdout, re.M)}


def free_port():
    for port in random.sample(PORTS, 1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise Failed("no port is free")


def bson(value):
    """Returns the BSON type and the bytes of a value, for the types that are used here."""
    if isinstance(value, bool):
        return 8, bytes([value])
    if isinstance(value, int):
        return 16, struct.pack("<i", value)
    if isinstance(value, str):
        return 2, struct.pack("<i", len(value.encode()) + 1) + value.encode() + b"\0"
    items = value.items() if isinstance(value, dict) else ((str(index), item) for index, item in enumerate(value))
    inner = b""
    for name, item in items:
        kind, data = bson(item)
        inner += bytes([kind]) + name.encode() + b"\0" + data
    return (3 if isinstance(value, dict) else 4), struct.pack("<i", len(inner) + 5) + inner + b"\0"


def command(port, body):
    """Returns the bytes of the reply to a command."""
    with socket.create_connection(("127.0.0.1", port), timeout=SERVER_S / 2) as connection:
        data = bson(body)[1]
        connection.sendall(struct.pack("<iiiiIB", 21 + len(data), 1, 0, 2013, 0, 0) + data)
        reply = b""
        while len(reply) < 4 or len(reply) < struct.unpack("<i", reply[:4])[0]:
            more = connection.recv(65536)
            if not more:
                raise OSError("closed")
            reply += more
    return reply


@contextlib.contextmanager
def server():
    """Starts a server with the user on the host's loopback; yields its name and its port."""
    mongod = os.environ.get("MONGOD")
    if not mongod:
        with started(fake_server()) as port:
            yield "fake server", port, False
        return
    with tempfile.TemporaryDirectory() as folder:
        with started([mongod, "--bind_ip", "127.0.0.1", "--dbpath", folder, "--nounixsocket", "--logpath", f"{folder}/log"]) as port:
            user = {"createUser": USER, "pwd": PASSWORD, "roles": [], "mechanisms": ["SCRAM-SHA-256"], "$db": "admin"}
            if b"errmsg" in command(port, user):
                raise Failed("mongod did not create the user")
            yield "mongod", port, True


@contextlib.contextmanager
def server_with_access():
    """Starts the fake server with access control."""
    with started([*fake_server(), "--user", f"{USER}:{PASSWORD}:SCRAM-SHA-256"]) as port:
        yield port


def fake_server():
    subprocess.run(["cargo", "build", "--quiet", "--workspace", "--all-features", "--examples", "--bin", "fake_server"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return [target / "debug/fake_server"]


@contextlib.contextmanager
def started(words):
    """Starts a server by this command, and yields its port; the server is stopped at the end of the block."""
    for _ in range(PORT_TRIES):
        port = free_port()
        process = subprocess.Popen([*map(str, words), "--port", str(port)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            # If this process has ended, another one may have taken its port.
            if answers(process, port):
                yield port
                return
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(SERVER_S)
    raise Failed(f"the server did not start on {PORT_TRIES} ports; the last time it ended with {process.returncode}")


def answers(process, port):
    """Waits until the server answers or has ended; returns whether it answers."""
    end = time.monotonic() + SERVER_S
    while process.poll() is None:
        with contextlib.suppress(OSError):
            command(port, {"ping": 1, "$db": "admin"})
            # Another process on the same port would answer as well; this one then ends.
            try:
                process.wait(0.5)
                return False
            except subprocess.TimeoutExpired:
                return True
        if time.monotonic() > end:
            raise Failed("the server does not answer")
        time.sleep(0.1)
    return False


# ---------------------------------------------------------------------------------------- measuring


def limit_of(kind, before):
    """Returns the upper bound of a figure with this recorded value."""
    # A part may be negative, because it is the difference between two programs.
    growth = EXAMPLES_GROWTH if kind.startswith("examples") else GROWTH
    return max(before, before * growth) + (WAKEUPS_CHANCE if kind == "wakeups" else 0)


def count_wakeups(elf, address, before):
    """Returns the wake-ups per minute of an idle client, and the stack that it used at first, in bytes.

    - `before`: the recorded number of wake-ups, if any.
    """
    wakeups, stacks = [], []
    for _ in range(WAKEUPS_COUNTS):
        idle = run(elf, address, IDLE_S)
        wakeups.append(idle["idle_wakeups"] * 60 // IDLE_S)
        stacks.append(idle["stack"])
        if before is not None and min(wakeups) <= limit_of("wakeups", before):
            break
    print(f"wake-ups a minute: {wakeups}")
    return min(wakeups), stacks[0]


def list_wakeups(elf):
    """Prints the wake-ups per minute of idle clients with one connection. All run at the same time."""
    with server() as (which, port, _), concurrent.futures.ThreadPoolExecutor(len(IDLE_MONITORS)) as pool:
        idle = lambda monitor: run(elf, f"127.0.0.1:{port}", LISTED_IDLE_S, *monitor, limit_s=LISTED_IDLE_S + LIMIT_S)["idle_wakeups"] * 60 / LISTED_IDLE_S
        print(f"wake-ups a minute of an idle client, {which}:")
        for (mode, heartbeat_s), wakeups in zip(IDLE_MONITORS, pool.map(idle, IDLE_MONITORS)):
            print(f"  {mode}, every {heartbeat_s} s: {wakeups:.1f}")


def measure(elves, tools, kept):
    """Measures all figures; returns them by kind and name."""
    kinds = ("flash", "ram", "ram_of_sizes", "examples_flash", "examples_ram", "stack", "instructions", "wakeups", "panics", "unwanted")
    figures = {kind: {} for kind in kinds}
    sizes = {name: tools.sizes(elf) for name, elf in elves.items() if name not in ("client-idle", "instructions", "decode", "ram")}
    for name, (flash, ram) in sizes.items():
        group = "examples_" if any(name in names for names in EXAMPLES.values()) else ""
        figures[f"{group}flash"][name], figures[f"{group}ram"][name] = flash, ram
    for part, whole, rest in PARTS:
        if whole in sizes and rest in sizes:
            for index, kind in enumerate(("flash", "ram")):
                figures[kind][part] = sizes[whole][index] - sizes[rest][index]

    by_sizes = run(elves["ram"], network=False)
    figures["ram_of_sizes"] = {name: number for name, number in by_sizes.items() if name.startswith("conns_")}
    for name in ("base", "machines", "machines-scram"):
        figures["stack"][name] = run(elves[name], network=False)["stack"]
    counted = run(elves["instructions"], CYCLES, icount="shift=0", network=False)
    for name, key in (("check-out + check-in", "pool_us"), ("queue, check-in, wake, claim", "handoff_us")):
        figures["instructions"][name] = round((counted[key] - counted["loop_us"]) * 1000 / CYCLES)

    def measure_users(port):
        for name in ("client-scram", "client-direct"):
            figures["stack"][name] = run(elves[name], f"127.0.0.1:{port}", 0, 0, USER, PASSWORD)["stack"]

    with server() as (which, port, has_user):
        address = f"127.0.0.1:{port}"
        figures["stack"]["network"] = run(elves["network"], address)["stack"]
        name = "a minute, one connection"
        figures["wakeups"][name], figures["stack"]["client"] = count_wakeups(elves["client"], address, kept.get("wakeups", {}).get(name))
        counted = run(elves["client"], address, 0, CYCLES // 10, icount="shift=0")
        figures["instructions"]["client: selection, check-out, check-in"] = round(counted["cycles_us"] * 10_000 / CYCLES)
        if has_user:
            measure_users(port)
    if not has_user:
        with server_with_access() as port:
            measure_users(port)

    decoding = [site for site in panic_sites(tools, elves["decode"]) if site[0] == "wire" and not MISUSE.search(site[1])]
    for _, name, place in decoding:
        print(f"decode can panic in {name} of {place}")
    figures["panics"] = {"wire": 0, "wire, all that decodes": len(decoding), "hot path": 0, "elsewhere": 0, "async fn resumed": 0} | collections.Counter(
        group for group, _, _ in panic_sites(tools, elves["client-scram"])
    )
    for name, elf in elves.items():
        found = tools.names(elf)
        for kind, pattern in (("allocator symbols", ALLOCATORS), ("float formatting", FLOATS)):
            unwanted = sorted({symbol for symbol in found if pattern.search(symbol)})
            figures["unwanted"][kind] = figures["unwanted"].get(kind, 0) + len(unwanted)
            for symbol in unwanted:
                print(f"{name} has {symbol}")
    return figures, which


def judge(figures, kept, level):
    """Prints each figure beside its recorded value. Returns the number of figures that fail, and the number
    without a recorded value; with CI=true the latter fail too.

    - `level`: the opt-level of the programs.
    """
    aims = AIMS | {("flash", name): aim for name, aim in FLASH_AIMS[level].items()}
    failures, new, in_ci = 0, 0, os.environ.get("CI") == "true"
    for kind, values in figures.items():
        print(f"\n{kind}")
        for name, figure in values.items():
            before = kept.get(kind, {}).get(name)
            verdict = "new" if before is None else ""
            if before is not None:
                verdict = "GREW" if figure > limit_of(kind, before) else ""
            if figure and (kind == "unwanted" or (kind == "panics" and aims.get((kind, name)) == 0)):
                verdict = "UNWANTED"
            new += verdict == "new"
            failures += verdict in ("GREW", "UNWANTED") or (in_ci and verdict == "new")
            aim = aims.get((kind, name))
            aimed = "" if aim is None else f"aim {aim}: {'met' if figure <= aim else 'missed'}"
            print(f"  {name:42} {figure:8} {'' if before is None else before:>8}  {verdict:8} {aimed}".rstrip())
    return failures, new


def write(figures, toolchain):
    """Replaces the figures of this toolchain in the file."""
    everything = tomllib.loads(KEPT.read_text()) if KEPT.exists() else {}
    everything[toolchain] = figures
    lines = ["# What tests/firmware/numbers.py has measured, by toolchain: bytes, instructions, wake-ups, places. It writes this file (--update)."]
    for chain, kinds in sorted(everything.items(), reverse=True):
        for kind, values in kinds.items():
            lines += ["", f"[{chain}.{kind}]"] + [f'"{name}" = {figure}' for name, figure in values.items()]
    KEPT.write_text("\n".join(lines) + "\n")


def tell(figures):
    """Prints the most important figures, one per line, for the output of tests/run."""
    print()
    for part in ("pool + monitor + wire", "pool + monitor + wire + SCRAM", "embassy-net: TCP, DHCP", "client with SCRAM over it", "TLS besides", "RSA certificates besides", "P-384 certificates besides"):
        if part in figures["flash"]:
            print(f"firmware: {part}: flash {figures['flash'][part]}, RAM {figures['ram'][part]} bytes")
    stacks = ", ".join(f"{name} {stack}" for name, stack in figures["stack"].items())
    print(f"firmware: stack in bytes: {stacks}")
    print(f"firmware: check-out + check-in: {figures['instructions']['check-out + check-in']} instructions")
    print(f"firmware: idle with one connection: {figures['wakeups']['a minute, one connection']} wake-ups a minute")


def main():
    arguments = sys.argv[1:]
    level = "s"
    if arguments[:1] == ["--size"] and arguments[1:2] and arguments[1] in FLASH_AIMS:
        level, arguments = arguments[1], arguments[2:]
    if arguments not in ([], ["--update"], ["--panics"], ["--wakeups"]) and arguments[:1] != ["--map"]:
        sys.exit(__doc__)
    elves, toolchain = build(level)
    if level != "s":
        toolchain = f"{toolchain}-{level}"
    tools = Tools()
    if arguments[:1] == ["--map"]:
        if len(arguments) != 2 or arguments[1] not in elves:
            sys.exit(f"programs: {' '.join(elves)}")
        return show_map(tools, elves[arguments[1]])
    if arguments == ["--wakeups"]:
        return list_wakeups(elves["client-idle"])
    if arguments == ["--panics"]:
        sites = panic_sites(tools, elves["client-scram"]) + [site for site in panic_sites(tools, elves["decode"]) if site[0] == "wire"]
        for (group, name, place), count in sorted(collections.Counter(sites).items()):
            print(f"{group:16} {count:3} {name} of {place}")
        return None
    kept = tomllib.loads(KEPT.read_text()).get(toolchain, {}) if KEPT.exists() else {}
    figures, which = measure(elves, tools, kept)
    print(f"Cortex-M4F, opt-level {level}, fat LTO, {toolchain} toolchain, {which}")
    failures, new = judge(figures, kept, level)
    if arguments == ["--update"]:
        write(figures, toolchain)
        return None
    if new:
        print(f"\nskipped: firmware:numbers/{toolchain}: {new} figures have no recorded value (tests/firmware/numbers.py --update; with CI=true that is a failure)")
    print(f"\n{failures} figures failed")
    tell(figures)
    return sys.exit(1 if failures else 0)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
