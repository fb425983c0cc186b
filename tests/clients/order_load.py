"""Inserts orders until its standard input is closed: order_load.py CLIENT TARGET RECORDS WORKERS INTERVAL_MS.

CLIENT   `service` (by HTTP), `pymongo`, or a planted client: `forgetful` acknowledges an order before
         it is stored, `doubling` stores some orders twice, `repeating` and `service-repeating`
         send some twice, by pymongo with another `_id` and by HTTP
TARGET   host:port of the service, or a connection string with a database
RECORDS  receives a line of JSON for each order: number, times of CLOCK_MONOTONIC, null or the error,
         which is `taken` if an order has the number: the insert was executed before

Each worker is a thread that inserts an order with a new number at each interval, and does not repeat
one that failed. It prints `ready` when the first operation can begin.
"""

import http.client
import json
import os
import sys
import threading
import time

from pymongo import MongoClient, WriteConcern
from pymongo.errors import DuplicateKeyError

# Longer than any limit of a client.
HTTP_LIMIT_S = 90
# If the judge ends without closing the standard input.
LIFE_LIMIT_S = 1_800
END_LIMIT_S = 100
ERROR_CHARACTERS_MAX = 200
# The planted clients do it with each order of this number of orders.
PLANTED_EACH = 10
TAKEN = "taken"


class NumberTaken(Exception):
    pass


def order_of(number):
    # `what` stays the same if a client changes the number, so the judge detects a copy.
    return {"number": number, "customer": number.rsplit("-", 1)[0], "amount_cents": 1250, "what": number}


class Service:
    """Each worker has a connection."""

    def __init__(self, target):
        self.target = target

    def inserter(self):
        connection = http.client.HTTPConnection(self.target, timeout=HTTP_LIMIT_S)

        def insert(number):
            try:
                connection.request("POST", "/orders", json.dumps(order_of(number)))
                response = connection.getresponse()
                body = response.read()
            except Exception:
                # The next request opens another connection.
                connection.close()
                raise
            if response.status == 409:
                raise NumberTaken
            if response.status != 201:
                raise RuntimeError(f"{response.status}: {body.decode(errors='replace').strip()}")

        return insert


class Pymongo:
    """All workers share a client, with the defaults of pymongo."""

    def __init__(self, target):
        self.orders = MongoClient(target).get_default_database().get_collection("orders", write_concern=WriteConcern("majority"))
        self.orders.database.client.admin.command("ping")

    def inserter(self):
        return lambda number: self.orders.insert_one({**order_of(number), "paid": False})


class Forgetful(Pymongo):
    def inserter(self):
        waiting = []

        def insert(number):
            waiting.append({**order_of(number), "paid": False})
            if len(waiting) == PLANTED_EACH:
                # The last one stays in memory until it is too late.
                self.orders.insert_many(waiting[:-1])
                waiting.clear()

        return insert


class Doubling(Pymongo):
    def inserter(self):
        count = 0

        def insert(number):
            nonlocal count
            count += 1
            self.orders.insert_one({**order_of(number), "paid": False})
            if count % PLANTED_EACH == 0:
                # As if no reply had arrived.
                self.orders.insert_one({**order_of(number), "number": f"{number}-again", "paid": False})

        return insert


def twice(insert):
    """Repeats some inserts although they have succeeded."""
    count = 0

    def insert_twice(number):
        nonlocal count
        count += 1
        insert(number)
        if count % PLANTED_EACH == 0:
            insert(number)

    return insert_twice


class Repeating(Pymongo):
    def inserter(self):
        # Each call makes a document, which gets an `_id` of its own.
        return twice(super().inserter())


class ServiceRepeating(Service):
    def inserter(self):
        return twice(super().inserter())


CLIENTS = {
    "service": Service,
    "pymongo": Pymongo,
    "forgetful": Forgetful,
    "doubling": Doubling,
    "repeating": Repeating,
    "service-repeating": ServiceRepeating,
}


def work(name, insert, stop, begin, interval, records):
    due = begin
    sequence = 0
    while not stop.wait(max(0, due - time.monotonic())):
        number = f"{name}-{sequence}"
        sequence += 1
        begun, error = time.monotonic(), None
        try:
            insert(number)
        except (NumberTaken, DuplicateKeyError):
            error = TAKEN
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"[:ERROR_CHARACTERS_MAX]
        ended = time.monotonic()
        records.append((number, begun, ended, error))
        due = max(due + interval, ended)


def main():
    kind, target, path, workers, interval_ms = sys.argv[1:]
    workers, interval = int(workers), int(interval_ms) / 1000
    client = CLIENTS[kind](target)
    stop = threading.Event()
    begin = time.monotonic()
    records = [[] for _ in range(workers)]
    threads = [
        threading.Thread(
            target=work,
            args=(f"{kind}-{worker}", client.inserter(), stop, begin + interval * worker / workers, interval, records[worker]),
            daemon=True,
        )
        for worker in range(workers)
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    life = threading.Timer(LIFE_LIMIT_S, os._exit, [3])
    life.daemon = True
    life.start()
    sys.stdin.read()
    stop.set()
    end = time.monotonic() + END_LIMIT_S
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    with open(path, "w") as file:
        for record in sorted((record for each in records for record in each), key=lambda record: record[1]):
            file.write(json.dumps(record) + "\n")
    pending = sum(thread.is_alive() for thread in threads)
    if pending:
        sys.exit(f"{pending} operations did not end within {END_LIMIT_S} s")


main()
