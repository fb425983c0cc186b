#!/usr/bin/env python3
"""Tests the fake server with other projects' drivers: pymongo and libmongoc, as installed by
tests/scripts/clients.

usage: POOLHOUSE_CLIENTS=$(tests/scripts/clients) tests/clients/run.py [NAME]    (only cases whose names contain NAME)

Each case has a separate server on ports that the system chooses. The server ends when its standard
input is closed, so it does not outlive this process. Cases run concurrently, and each prints one
line. Exit status 1 if a case failed.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Much longer than a case takes. The clients have shorter limits of their own.
CLIENT_LIMIT_S = 90
SERVER_LIMIT_S = 20

SET = ["--replica-set", "3"]
ELECTIONS = [*SET, "--fail-over-every", "3"]
ADA = ["--user", "ada:pencil"]

# Name; arguments of the server; user and password; options of the connection string; monitoring
# mode; expected result.
CASES = [
    ("alone, streaming", [], "", "", "streaming", "ok"),
    ("alone, polling", [], "", "", "polling", "ok"),
    ("set, streaming", SET, "", "", "streaming", "ok"),
    ("elections, streaming", ELECTIONS, "", "", "streaming", "fail-over"),
    ("elections, polling", ELECTIONS, "", "", "polling", "fail-over"),
    ("mechanism negotiated", ADA, "ada:pencil", "", "streaming", "ok"),
    ("SCRAM-SHA-1", ADA, "ada:pencil", "authMechanism=SCRAM-SHA-1", "streaming", "ok"),
    ("SCRAM-SHA-256", ADA, "ada:pencil", "authMechanism=SCRAM-SHA-256", "polling", "ok"),
    ("SCRAM-SHA-1 only", ["--user", "ada:pencil:SCRAM-SHA-1"], "ada:pencil", "", "polling", "ok"),
    ("elections, SCRAM", [*ELECTIONS, *ADA], "ada:pencil", "", "streaming", "fail-over"),
    ("wrong password, SCRAM-SHA-1", ADA, "ada:other", "authMechanism=SCRAM-SHA-1", "streaming", "refused"),
    ("wrong password, SCRAM-SHA-256", ADA, "ada:other", "authMechanism=SCRAM-SHA-256", "polling", "refused"),
    ("unknown user", ADA, "eve:pencil", "", "streaming", "refused"),
]


def build():
    """Returns the path of the fake server. It is built with the examples, so that its features are those of
    the workspace's tests, for which it was already built."""
    what = ["--workspace", "--all-features", "--examples", "--bin", "fake_server"]
    command = ["cargo", "build", *what, "--message-format", "json"]
    if os.environ.get("CI") == "true":
        command.append("--locked")
    built = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    paths = [message["executable"] for message in messages if message.get("target", {}).get("name") == "fake_server"]
    return [path for path in paths if path][-1]


class Server:
    """A fake server; stopped at the end of the block."""

    def __init__(self, path, arguments):
        self.process = subprocess.Popen(
            [path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # Without the watchdog a silent server would block the next line forever.
        watchdog = threading.Timer(SERVER_LIMIT_S, self.process.kill)
        watchdog.start()
        self.uri = self.process.stdout.readline().strip()
        watchdog.cancel()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.output, _ = self.process.communicate(timeout=SERVER_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise


def run(server_path, client, case):
    name, arguments, user, options, mode, expectation = case
    with Server(server_path, arguments) as server:
        if not server.uri.startswith("mongodb://"):
            return f"the server said {server.uri!r}"
        uri = server.uri.replace("://", f"://{user}@") if user else server.uri
        uri = f"{uri}&{options}" if options else uri
        try:
            done = subprocess.run(
                [*client, uri, mode, expectation],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CLIENT_LIMIT_S,
            )
        except subprocess.TimeoutExpired as late:
            return f"not done after {CLIENT_LIMIT_S} s: {late.output}"
    if done.returncode != 0:
        return f"exit status {done.returncode}: {done.stdout.decode(errors='replace')}\nserver: {server.output}"
    if server.process.returncode != 0:
        return f"the server ended with {server.process.returncode}: {server.output}"
    return None


def main():
    if len(sys.argv) > 2 or "POOLHOUSE_CLIENTS" not in os.environ:
        sys.exit(__doc__)
    folder = pathlib.Path(os.environ["POOLHOUSE_CLIENTS"]).resolve()
    here = pathlib.Path(__file__).resolve().parent
    clients = {
        "pymongo": [str(folder / "venv/bin/python"), str(here / "pymongo_client.py")],
        "libmongoc": [str(folder / "libmongoc_client")],
    }
    wanted = "".join(sys.argv[1:])
    server = build()
    begun = time.monotonic()

    def timed(*what):
        start = time.monotonic()
        return run(*what), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        running = [
            (f"{client}: {case[0]}", pool.submit(timed, server, command, case))
            for case in CASES
            for client, command in clients.items()
            if wanted in f"{client}: {case[0]}"
        ]
    failed = 0
    for name, future in running:
        problem, took = future.result()
        failed += problem is not None
        print(f"{name}: {'ok' if problem is None else f'FAILED: {problem}'} ({took:.1f} s)")
    print(f"{len(running) - failed} accepted, {failed} failed, {time.monotonic() - begun:.1f} s")
    sys.exit(1 if failed or not running else 0)


if __name__ == "__main__":
    main()
