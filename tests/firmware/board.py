#!/usr/bin/env python3
"""Tests the board support of runtime-embassy/firmware: runs its probes under QEMU, on a Cortex-M4F
and a Cortex-M3.

usage: tests/firmware/board.py [NAME]    (only cases whose names contain NAME)

Builds by tests/scripts/firmware and runs by tests/scripts/run-firmware. Prints one line per case.
Exit status 1 if a case failed.
"""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGETS = {"M4F": "thumbv7em-none-eabihf", "M3": "thumbv7m-none-eabi"}
# Much longer than a case takes.
LIMIT_S = 60
JUMPING = {"POOLHOUSE_FIRMWARE_ICOUNT": "shift=0,sleep=off"}
CUT_OFF = {"POOLHOUSE_FIRMWARE_NETWORK": "none"}
MESSAGES = 200
# Without the notification of QEMU's main loop, a connection takes at least 1.0 s.
CONNECT_US_MAX = 900_000
# An idle core is woken by its clock every 170 s, which makes 21 wake-ups per hour, and by the
# timers of the network stack.
IDLE_HOUR_WAKEUPS_MAX = 25


class Failed(Exception):
    """A case failed; the text is the reason."""


def script(name, *arguments):
    return [str(ROOT / "tests/scripts" / name), *map(str, arguments)]


def environment(more):
    return os.environ | {"POOLHOUSE_FIRMWARE_SECONDS": str(LIMIT_S)} | (more or {})


def build(triple):
    """Returns the folder of the built probes."""
    # The program that logs is built separately: the others must not receive the features of its
    # dependencies.
    for what in ([], ["--features", "defmt", "--bin", "log"]):
        built = subprocess.run(
            script("firmware", triple, "-p", "poolhouse-probe", *what), cwd=ROOT, env=os.environ | {"DEFMT_LOG": "debug"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )
        if built.returncode != 0:
            raise Failed(f"no probes for {triple}")
    return pathlib.Path(built.stdout.strip())


def run(folder, probe, *arguments, more=None, status=0):
    """Returns the output of a probe, which must end with this status."""
    done = subprocess.run(
        script("run-firmware", folder / probe, *arguments),
        env=environment(more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    ended = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if ended != status:
        raise Failed(f"exit status {ended}, not {status}: {done.stdout}")
    return done.stdout


def output(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout


class Echo:
    """An echo server on the host's loopback that serves one connection after another; stopped at the end of the block."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        # One entry for each connection that the client has closed in an orderly way: the number of
        # bytes received.
        self.ended = []
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(LIMIT_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                count = 0
                while data := connection.recv(4096):
                    count += len(data)
                    connection.sendall(data)
                self.ended.append(count)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        # Closing the socket alone would not end a waiting accept.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(LIMIT_S)


def timers(folder):
    return run(folder, "timers", 2, more=CUT_OFF)


def an_hour_of_timers(folder):
    return run(folder, "timers", 3600, more=JUMPING | CUT_OFF)


def an_idle_hour(folder):
    return run(folder, "idle", 60, IDLE_HOUR_WAKEUPS_MAX, more=JUMPING)


def echo(folder):
    with Echo() as server:
        outputs = [run(folder, "echo", "127.0.0.1", server.port, MESSAGES) for _ in range(3)]
    if server.ended != [MESSAGES * 64] * 3:
        raise Failed(f"the server received {server.ended} bytes until the end of each connection: {outputs}")
    connects = [int(re.search(r"connected to \S+ in (\d+) us", output)[1]) for output in outputs]
    if min(connects) > CONNECT_US_MAX:
        raise Failed(f"connections took {connects} us")
    return outputs[connects.index(min(connects))]


def nobody_listens(folder):
    with Echo() as server:
        pass
    output = run(folder, "echo", "127.0.0.1", server.port, 1, status=1)
    if "no connection" not in output:
        raise Failed(output)
    return output


def cable(folder):
    """Unplugs the cable and plugs it in by QEMU's monitor, when the probe requests it."""
    with tempfile.TemporaryDirectory() as place:
        path = str(pathlib.Path(place) / "monitor")
        probe = subprocess.Popen(
            script("run-firmware", folder / "cable"), env=environment({"POOLHOUSE_FIRMWARE_MONITOR": path}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        asked = []
        with socket.socket(socket.AF_UNIX) as monitor:
            for line in probe.stdout:
                if not asked:
                    monitor.connect(path)
                    # The output of the monitor is not used, but it must be read.
                    threading.Thread(target=drain, args=[monitor], daemon=True).start()
                asked.append(line.strip())
                command = {"pull the cable": b"set_link nic0 off\n", "plug it in": b"set_link nic0 on\n"}.get(asked[-1])
                if command:
                    monitor.sendall(command)
            status = probe.wait(LIMIT_S + 10)
    if status != 0 or asked != ["pull the cable", "plug it in"]:
        raise Failed(f"exit status {status}: {asked}")
    return "\n".join(asked)


def drain(stream):
    with contextlib.suppress(OSError):
        while stream.recv(4096):
            pass


def crashes(folder):
    outputs = [run(folder, "crash", what, status=status) for what, status in (("panic", 101), ("fault", 102))]
    # The core has no stack left to handle the fault; QEMU aborts, which a shell reports as 128 +
    # SIGABRT.
    overflow = run(folder, "crash", "overflow", status=134)
    if "Lockup" not in overflow:
        raise Failed(overflow)
    return "".join(outputs)


def log(folder):
    """Events are defmt frames with the texts of the device. The texts of this library stay on the host: they are
    names of symbols in the ELF, and not in the flash."""
    frames = subprocess.run(
        script("run-firmware", folder / "log"), env=environment(CUT_OFF), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )
    # A block of the encoding ends at each zero byte; the bytes of a text are otherwise contiguous.
    text = bytes(byte for byte in frames.stdout if 32 <= byte < 127).decode()
    if frames.returncode != 0 or not all(part in text for part in ("db.exa", "mple:27017")):
        raise Failed(f"exit status {frames.returncode}: {frames.stdout}")
    elf, tools = folder / "log", pathlib.Path(output(script("arm-tools")).strip())
    symbols = output([tools / "arm-none-eabi-nm", elf])
    with tempfile.NamedTemporaryFile() as flash:
        output([tools / "arm-none-eabi-objcopy", "-O", "binary", elf, flash.name])
        image = flash.read()
    for name in (b"PoolReady", b"ConnectionCheckOutFailed", b"WaitQueueTimeout", b"HeartbeatFailed", b"RsPrimary"):
        if name in image or name.decode() not in symbols:
            raise Failed(f"{name} is in the flash, or not among the symbols")
    return f"{text}\n{len(image)} bytes"


CASES = [timers, an_hour_of_timers, an_idle_hour, echo, nobody_listens, cable, crashes, log]


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    wanted = "".join(sys.argv[1:])
    failures = count = 0
    for core, triple in TARGETS.items():
        folder = build(triple)
        for case in CASES:
            name = f"{core}, {case.__name__.replace('_', ' ')}"
            if wanted not in name:
                continue
            count += 1
            start = time.monotonic()
            try:
                output, verdict = case(folder), "ok"
            except Failed as failure:
                output, verdict = str(failure), "FAILED"
                failures += 1
            print(f"{name:24} {verdict:6} {time.monotonic() - start:5.1f} s", flush=True)
            for line in output.strip().splitlines():
                print(f"    {line}", flush=True)
    print(f"{count - failures} passed, {failures} failed")
    sys.exit(1 if failures or not count else 0)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
