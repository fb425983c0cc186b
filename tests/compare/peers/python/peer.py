"""Runs the rounds of a client: see ../README.md."""

import os
import sys
import threading
import time
import traceback


def run(command):
    """Sends one command, and then those of each round."""
    command()
    print("ready", flush=True)
    for line in sys.stdin:
        tasks, milliseconds = map(int, line.split())
        round_of(command, tasks, milliseconds / 1e3)


def round_of(command, tasks, duration):
    waits = [[] for _ in range(tasks)]
    begun = []
    barrier = threading.Barrier(tasks, action=lambda: begun.append(time.perf_counter()))

    def work(own):
        try:
            barrier.wait()
            start = begun[0]
            while start - begun[0] < duration:
                command()
                end = time.perf_counter()
                own.append(end - start)
                start = end
        except Exception:
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=work, args=(own,)) for own in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun[0]
    print(sum(map(len, waits)), seconds, flush=True)
    every = sorted(wait * 1e6 for own in waits for wait in own)
    print(*(every[int(share * (len(every) - 1))] for share in (0.5, 0.99)), flush=True)
