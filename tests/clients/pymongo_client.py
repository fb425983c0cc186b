"""Tests a server with pymongo, step by step: pymongo_client.py URI streaming|polling EXPECTATION.

EXPECTATION: `ok`, `fail-over` (the set elects another primary meanwhile) or `refused` (by
authentication).
"""

import sys
import threading
import time

from pymongo import MongoClient, monitoring
from pymongo.errors import OperationFailure

PATIENCE_S = 20.0


class Heartbeats(monitoring.ServerHeartbeatListener):
    """Counts checks of each address, awaited and not."""

    def __init__(self):
        self.changed = threading.Condition()
        self.awaited = {}
        self.polled = {}
        self.failures = []

    def started(self, event):
        pass

    def succeeded(self, event):
        with self.changed:
            counts = self.awaited if event.awaited else self.polled
            counts[event.connection_id] = counts.get(event.connection_id, 0) + 1
            self.changed.notify_all()

    def failed(self, event):
        with self.changed:
            self.failures.append(str(event.reply))
            self.changed.notify_all()

    def wait(self, what, condition):
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE_S):
                raise AssertionError(f"not within the time limit: {what}; awaited {self.awaited}, polled {self.polled}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def works(client):
    check(client.admin.command("ping")["ok"] == 1, "ping")
    check(client.server_info()["version"], "buildInfo")
    collection = client.db[f"c{time.monotonic_ns()}"]
    collection.insert_many([{"_id": number, "text": "x" * 1000} for number in range(100)])
    found = list(collection.find({}, batch_size=30))
    check([each["_id"] for each in found] == list(range(100)), f"{len(found)} documents found")
    try:
        client.admin.command("noSuchCommand")
    except OperationFailure as error:
        check(error.code == 59, f"code {error.code}")
    else:
        raise AssertionError("an unknown command was not refused")
    check(client.admin.command("ping")["ok"] == 1, "ping after an error")


def fails_over(client):
    """Writes until another primary has accepted some documents; no write fails."""
    deadline = time.monotonic() + PATIENCE_S
    first, after = None, 0
    while after < 10:
        check(time.monotonic() < deadline, f"no other primary than {first}")
        client.db.writes.insert_one({})
        primary = client.primary
        if primary is not None:
            first = first or primary
            after += primary != first
        time.sleep(0.02)


def main():
    uri, mode, expectation = sys.argv[1:]
    heartbeats = Heartbeats()
    client = MongoClient(
        uri,
        event_listeners=[heartbeats],
        heartbeatFrequencyMS=500,
        serverSelectionTimeoutMS=int(PATIENCE_S * 1000),
        serverMonitoringMode="stream" if mode == "streaming" else "poll",
        appname="pymongo",
    )
    if expectation == "refused":
        try:
            client.admin.command("ping")
        except OperationFailure as error:
            check(error.code == 18, f"code {error.code}: {error}")
        else:
            raise AssertionError("the server accepted a wrong password")
        client.close()
        return
    works(client)
    if expectation == "fail-over":
        fails_over(client)
        works(client)
    if mode == "streaming":
        heartbeats.wait("three awaited checks", lambda: any(count >= 3 for count in heartbeats.awaited.values()))
        # The server's count of streams proves streaming: an awaited check alone could be a separate
        # request. The count may be 1 too high for a moment.
        deadline = time.monotonic() + PATIENCE_S
        while client.admin.command("serverStatus")["connections"]["exhaustHello"] < 1:
            check(time.monotonic() < deadline, "the server does not stream hello replies")
    else:
        heartbeats.wait("three polls", lambda: any(count >= 3 for count in heartbeats.polled.values()))
        check(not heartbeats.awaited, "a polling client sent awaited checks")
    works(client)
    check(not heartbeats.failures, f"checks failed: {heartbeats.failures}")
    client.close()


main()
