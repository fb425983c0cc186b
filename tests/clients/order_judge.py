#!/usr/bin/env python3
"""Compares the order service with pymongo while the primary of a real replica set fails.

usage: tests/scripts/order-service [--self-test | --workers N --interval-ms N]

Starts three mongod on loopback and the example `order_service`. 50 workers insert an order each 100
ms by HTTP, and 50 by pymongo with its defaults, at the same time, with `w: majority`. Meanwhile the
primary is killed, steps down, is stopped for 20 s, and is restarted. At the end the collections are
read back. An order is

    lost     acknowledged, and not in its collection
    doubled  in its collection more than once, or refused because its number is taken: each is sent
             once by its worker, so the client has executed the insert twice
    foreign  in its collection, and never sent

Exit status 1 if the service lost or doubled an order, stored a foreign one, did not end in order, or
has more failed operations than pymongo. First, planted clients check the judge itself, without
failures of servers: one that loses an acknowledged order, one that stores an order twice, and two that
send an order twice.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pymongo import MongoClient, ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
START_LIMIT_S = 90
# For a member that was killed, until it has caught up.
RECOVERY_LIMIT_S = 180
END_LIMIT_S = 130
COMMAND_LIMIT_MS = 5_000
POLL_S = 0.1
# Of normal operation, before the first incident and after each recovery.
CALM_S = 5
# How long a killed primary stays away: longer than an election.
AWAY_S = 15
FREEZE_S = 20
# Below the ports that systems choose for outgoing connections, which could take that of a killed server.
PORTS = range(20_000, 32_000)
ERRORS_SHOWN = 5
# The error of order_load.py for a number that an order has.
TAKEN = "taken"
# The default is 10 s. An elected member waits for a stopped one that long before it accepts writes, and may do so only after
# the stopped one continues.
SETTINGS = {"heartbeatTimeoutSecs": 2}


def wait_until(what, limit_s, holds):
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit_s} s: {what}")
        time.sleep(POLL_S)


class Member:
    """A mongod with a port and a folder of its own, which stay the same after a restart."""

    def __init__(self, folder):
        self.folder, self.process = folder, None
        (folder / "data").mkdir(parents=True)
        self.port = self.free_port()
        self.client = MongoClient(
            "127.0.0.1",
            self.port,
            directConnection=True,
            serverSelectionTimeoutMS=COMMAND_LIMIT_MS,
            socketTimeoutMS=COMMAND_LIMIT_MS,
            connectTimeoutMS=COMMAND_LIMIT_MS,
            heartbeatFrequencyMS=500,
        )
        self.answers = False

    @staticmethod
    def free_port():
        for port in random.sample(PORTS, 100):
            with contextlib.suppress(OSError), socket.socket() as taken:
                taken.bind(("127.0.0.1", port))
                return port
        raise OSError("no free port")

    def start(self):
        command = [
            os.environ["MONGOD"], "--bind_ip", "127.0.0.1", "--port", str(self.port), "--replSet", "rs0",
            "--dbpath", str(self.folder / "data"), "--logpath", str(self.folder / "log"), "--logappend", "--quiet", "--nounixsocket",
            "--oplogSize", "200", "--wiredTigerCacheSizeGB", "0.25",
            "--wiredTigerEngineConfigString", "log=(prealloc=false,file_max=8MB)",
            "--setParameter", "diagnosticDataCollectionEnabled=false",
        ]  # fmt: skip
        output = open(self.folder / "output", "ab")
        with output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.answers = True

    def hello(self):
        """The reply to hello; None if there is none."""
        if not self.answers or self.process.poll() is not None:
            return None
        with contextlib.suppress(PyMongoError):
            return self.client.admin.command("hello")
        return None

    def kill(self):
        self.answers = False
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.answers = False
        self.process.terminate()

    def freeze(self):
        self.answers = False
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
        self.answers = True


class ReplicaSet:
    """A set; its servers end with the block."""

    def __init__(self, folder, count):
        self.members = [Member(folder / f"member{index}") for index in range(count)]

    def __enter__(self):
        try:
            for member in self.members:
                member.start()
            wait_until("each member answers", START_LIMIT_S, lambda: all(member.hello() for member in self.members))
            hosts = [{"_id": index, "host": f"127.0.0.1:{member.port}"} for index, member in enumerate(self.members)]
            self.members[0].client.admin.command("replSetInitiate", {"_id": "rs0", "members": hosts, "settings": SETTINGS})
            self.recover()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                # Ends a stopped process too.
                member.kill()
            member.client.close()

    def uri(self, database):
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"mongodb://{hosts}/{database}?replicaSet=rs0"

    def recover(self):
        """Waits until one member is primary, and each other one is a secondary that can be elected next: it has all writes, and
        is not barred because it has stepped down."""

        def is_complete():
            replies = [member.hello() or {} for member in self.members]
            primaries = [member for member, reply in zip(self.members, replies) if reply.get("isWritablePrimary")]
            if len(primaries) != 1 or sum(reply.get("secondary", False) for reply in replies) != len(replies) - 1:
                return False
            with contextlib.suppress(PyMongoError):
                for member in self.members:
                    if member is not primaries[0]:
                        member.client.admin.command("replSetFreeze", 0)
                everywhere = {"w": len(self.members), "wtimeout": COMMAND_LIMIT_MS - 1_000}
                primaries[0].client.admin.command("appendOplogNote", 1, data={"recovered": 1}, writeConcern=everywhere)
                return True
            return False

        wait_until("a primary and secondaries", RECOVERY_LIMIT_S, is_complete)

    def elected(self, old, least_s):
        """Waits at least this time, and longer while no other member than `old` is primary. Returns the time until then; None
        if that takes too long."""
        begin, time_s = time.monotonic(), None
        while (passed := time.monotonic() - begin) < (least_s if time_s is not None else max(least_s, FREEZE_S)):
            others = [member for member in self.members if member is not old]
            if time_s is None and any((member.hello() or {}).get("isWritablePrimary") for member in others):
                time_s = round(passed, 1)
            time.sleep(POLL_S)
        return time_s

    def primary(self):
        found = [member for member in self.members if (member.hello() or {}).get("isWritablePrimary")]
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} primaries")
        return found[0]


# Each returns the time in seconds until another member is primary.


def kill(servers):
    primary = servers.primary()
    primary.kill()
    time_s = servers.elected(primary, AWAY_S)
    primary.start()
    return time_s


def step_down(servers):
    primary = servers.primary()
    for attempt in range(5):
        try:
            # Its own time limit is that of the secondaries to catch up.
            with MongoClient("127.0.0.1", primary.port, directConnection=True, socketTimeoutMS=30_000) as client:
                client.admin.command("replSetStepDown", 30, secondaryCatchUpPeriodSecs=10)
            return servers.elected(primary, 0)
        except PyMongoError as error:
            print(f"step-down {attempt} was refused: {error}", flush=True)
            time.sleep(1)
    raise RuntimeError("the primary did not step down")


def freeze(servers):
    primary = servers.primary()
    primary.freeze()
    time_s = servers.elected(primary, FREEZE_S)
    primary.thaw()
    return time_s


def restart(servers):
    primary = servers.primary()
    primary.terminate()
    # Another member is elected while the primary still ends.
    time_s = servers.elected(primary, 0)
    primary.process.wait(RECOVERY_LIMIT_S)
    primary.start()
    return time_s


INCIDENTS = {"kill -9": kill, "step down": step_down, "stopped 20 s": freeze, "restart": restart}


class Program:
    """A child process with a first line of output; ended with the block."""

    def __init__(self, command, errors):
        self.errors = errors
        with open(errors, "ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True)
        # Without the watchdog a silent process would block the next line forever.
        watchdog = threading.Timer(START_LIMIT_S, self.process.kill)
        watchdog.start()
        self.line = self.process.stdout.readline().strip()
        watchdog.cancel()
        if not self.line:
            self.__exit__()
            raise RuntimeError(f"{command[0]} printed nothing: {self.tail()}")

    def tail(self):
        return self.errors.read_text(errors="replace")[-2000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self, number=None):
        """Closes its standard input, or sends a signal; returns its exit status."""
        if number is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(number)
        return self.process.wait(END_LIMIT_S)


class Load(Program):
    def __init__(self, kind, target, folder, arguments):
        self.kind, self.records = kind, folder / f"{kind}.json"
        command = [sys.executable, str(HERE / "order_load.py"), kind, target, str(self.records), str(arguments.workers), str(arguments.interval_ms)]
        super().__init__(command, folder / f"{kind}.errors")

    def outcome(self):
        status = self.end()
        if status != 0:
            raise RuntimeError(f"the load of {self.kind} ended with {status}: {self.tail()}")
        return [json.loads(line) for line in self.records.read_text().splitlines()]


def judge(records, found, windows):
    """The figures of each window, by the orders whose operations ended in it.

    records: (number, begin, end, error); found: the `what` of each stored document, or its number;
    windows: (name, begin, end)."""
    counts = collections.Counter(found)
    sent = {record[0] for record in records}
    foreign = sum(count for what, count in counts.items() if what not in sent)
    rows = {}
    for index, (name, begin, end) in enumerate(windows):
        # The first and the last have everything before and after.
        lower = begin if index > 0 else float("-inf")
        upper = end if index + 1 < len(windows) else float("inf")
        own = [record for record in records if lower <= record[2] < upper]
        successes = sorted(record[2] for record in records if record[3] is None and begin <= record[2] < end)
        moments = [begin, *successes, end]
        rows[name] = {
            "operations": len(own),
            "failed": sum(record[3] not in (None, TAKEN) for record in own),
            "lost": sum(record[3] is None and counts[record[0]] == 0 for record in own),
            "doubled": sum(counts[record[0]] > 1 or record[3] == TAKEN for record in own),
            "longest_without_success_s": round(max(later - earlier for earlier, later in zip(moments, moments[1:])), 2),
            "slowest_s": round(max((record[2] - record[1] for record in own), default=0), 2),
        }
    return {"windows": rows, "foreign": foreign}


def total(figures, name):
    return sum(row[name] for row in figures["windows"].values())


def wrongs(service, pymongo):
    """What is wrong with the service, as sentences."""
    found = [f"the service has {total(service, name)} {name} orders" for name in ("lost", "doubled") if total(service, name)]
    if service["foreign"]:
        found.append(f"the service has stored {service['foreign']} orders that were never sent")
    if total(service, "failed") > total(pymongo, "failed"):
        found.append(f"{total(service, 'failed')} operations of the service failed, of pymongo {total(pymongo, 'failed')}")
    found += [f"no operation of the service in: {name}" for name, row in service["windows"].items() if row["operations"] == 0]
    return found


def read_back(servers, database):
    with MongoClient(servers.uri(database)) as client:
        orders = client.get_default_database(read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority")).orders
        return [document["what"] for document in orders.find({}, {"what": 1})]


def create_index(servers, database):
    """As the service does."""
    with MongoClient(servers.uri(database)) as client:
        client.get_default_database().orders.create_index("number", unique=True, name="number")


def start_service(servers, folder, database="service"):
    return Program([os.environ["POOLHOUSE_ORDER_SERVICE"], servers.uri(database), "127.0.0.1:0"], folder / f"{database}.stderr")


def run_self_test(folder, arguments):
    """Each planted client is found, an honest one is not. Returns what is wrong."""
    expected = {
        "pymongo": (),
        "service": (),
        "forgetful": ("lost",),
        "doubling": ("doubled",),
        "repeating": ("doubled",),
        "service-repeating": ("doubled",),
    }
    wrong = []
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(ReplicaSet(folder / "self-test", 1))
        services = {kind: stack.enter_context(start_service(servers, folder, kind)) for kind in ("service", "service-repeating")}
        for kind, defects in expected.items():
            create_index(servers, kind)
            target = services[kind].line.removeprefix("http://") if kind in services else servers.uri(kind)
            begin = time.monotonic()
            with Load(kind, target, folder, arguments) as load:
                time.sleep(3)
                records = load.outcome()
            figures = judge(records, read_back(servers, kind), [("all", begin, time.monotonic())])
            found = tuple(name for name in ("failed", "lost", "doubled") if total(figures, name)) + (("foreign",) if figures["foreign"] else ())
            print(f"self test, {kind}: {len(records)} orders, found: {', '.join(found) or 'nothing'}", flush=True)
            if found != defects or not records:
                wrong.append(f"self test: the judge found {found} in the client {kind}, not {defects}")
        for service in services.values():
            status = service.end(signal.SIGTERM)
            if status != 0:
                wrong.append(f"self test: the service ended with {status}: {service.tail()}")
    good = judge([("a", 0, 1, None)], ["a"], [("all", 0, 2)])
    late = judge([("a", 0, 1, "late")], [], [("all", 0, 2)])
    if wrongs(good, good) or not wrongs(late, good) or wrongs(late, late):
        wrong.append("self test: failed operations are not compared")
    if not wrongs(judge([("a", 0, 1, None)], ["a", "b"], [("all", 0, 2)]), good):
        wrong.append("self test: a foreign order is not found")
    return wrong


def run(folder, arguments):
    """Runs the load and the incidents; returns the figures of both clients, and what is wrong."""
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(ReplicaSet(folder / "set", 3))
        service = stack.enter_context(start_service(servers, folder))
        create_index(servers, "pymongo")
        loads = [
            stack.enter_context(Load("service", service.line.removeprefix("http://"), folder, arguments)),
            stack.enter_context(Load("pymongo", servers.uri("pymongo"), folder, arguments)),
        ]
        begins, elections = [("steady", time.monotonic())], {}
        time.sleep(CALM_S)
        for name, incident in INCIDENTS.items():
            print(f"{name} ..", flush=True)
            begins.append((name, time.monotonic()))
            elections[name] = incident(servers)
            servers.recover()
            time.sleep(CALM_S)
        ends = [begin for _, begin in begins[1:]] + [time.monotonic()]
        windows = [(name, begin, end) for (name, begin), end in zip(begins, ends)]
        # Side by side, because each waits for its last operations.
        for load in loads:
            load.process.stdin.close()
        records = {load.kind: load.outcome() for load in loads}
        servers.recover()
        figures = {kind: judge(records[kind], read_back(servers, kind), windows) for kind in records}
        wrong = wrongs(figures["service"], figures["pymongo"])
        status = service.end(signal.SIGTERM)
        if status != 0:
            wrong.append(f"the service ended with {status}: {service.tail()}")
    for kind, of_client in records.items():
        errors = collections.Counter(record[3] for record in of_client if record[3] is not None)
        for error, count in errors.most_common(ERRORS_SHOWN):
            print(f"{kind}: {count} times {error}")
    return {**figures, "another_primary_after_s": elections}, wrong


def print_table(figures):
    for name, time_s in figures["another_primary_after_s"].items():
        print(f"{name}: another primary after {time_s} s")
    print(f"{'scenario':<14}{'client':<9}{'operations':>11}{'failed':>8}{'lost':>6}{'doubled':>9}{'s without success':>19}{'slowest, s':>12}")
    for name in figures["service"]["windows"]:
        for kind in ("service", "pymongo"):
            row = figures[kind]["windows"][name]
            print(
                f"{name:<14}{kind:<9}{row['operations']:>11}{row['failed']:>8}{row['lost']:>6}{row['doubled']:>9}"
                f"{row['longest_without_success_s']:>19}{row['slowest_s']:>12}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="checks the judge only, in some seconds")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--interval-ms", type=int, default=100)
    arguments = parser.parse_args()
    # So that blocks end their processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-orders-", dir=os.environ.get("POOLHOUSE_SCRATCH")))
    try:
        wrong = run_self_test(folder, arguments)
        if not wrong and not arguments.self_test:
            figures, wrong = run(folder, arguments)
            print_table(figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what in wrong:
        print(f"wrong: {what}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
