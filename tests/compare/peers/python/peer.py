"""Runs the rounds of a client: see ../README.md."""

import sys
import threading
import time


def run(command):
    """Sends one command, and then those of each round."""
    command()
    print("ready", flush=True)
    for line in sys.stdin:
        tasks, milliseconds = map(int, line.split())
        round_of(command, tasks, milliseconds / 1e3)


def round_of(command, tasks, duration):
    begun = time.perf_counter()
    waits = [[] for _ in range(tasks)]

    def work(own):
        start = time.perf_counter()
        while start - begun < duration:
            command()
            end = time.perf_counter()
            own.append(end - start)
            start = end

    threads = [threading.Thread(target=work, args=(own,)) for own in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    every = sorted(wait * 1e6 for own in waits for wait in own)
    print(len(every), seconds, *(every[int(share * (len(every) - 1))] for share in (0.5, 0.99)), flush=True)
