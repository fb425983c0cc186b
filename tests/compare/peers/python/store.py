"""Writes and reads of pymongo, for `failover`: see ../README.md."""

import json
import sys
import threading
import time

from pymongo import MongoClient

TASKS, PAUSE_S = 50, 0.25
# See the notes of the section.
BEST = {"heartbeatFrequencyMS": 500, "connectTimeoutMS": 2_000, "timeoutMS": 60_000}

name, uri = sys.argv[1:]
writes = MongoClient(uri, **(BEST if name.endswith("-best") else {})).get_database("compare").writes
lock, ids, done, running = threading.Lock(), iter(range(1 << 62)), [], {}
end = threading.Event()


def now_ms():
    return time.time() * 1e3


def recorded(is_write, number, operation):
    """Returns whether the operation has succeeded."""
    record = {"is_write": is_write, "id": number, "begin_ms": now_ms()}
    with lock:
        running[threading.get_ident()] = record
    try:
        outcome = "Done" if operation() is not None else "Missing"
    except Exception as error:
        outcome = {"Failed": str(error)}
    with lock:
        del running[threading.get_ident()]
        done.append({**record, "end_ms": now_ms(), "outcome": outcome})
    return outcome in ("Done", "Missing")


def work():
    while not end.is_set():
        with lock:
            number = next(ids)
        write = {"client": name, "id": number}
        if recorded(True, number, lambda: writes.insert_one(dict(write))):
            recorded(False, number, lambda: writes.find_one(write))
        end.wait(PAUSE_S)


writes.database.client.admin.command("ping")
for _ in range(TASKS):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
end.set()
with lock:
    for record in done + [{**record, "end_ms": now_ms(), "outcome": "Running"} for record in running.values()]:
        print(json.dumps(record))
print("end", flush=True)
