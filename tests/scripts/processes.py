"""Runs commands in sessions of their own, and ends their processes."""

import contextlib
import os
import signal
import subprocess
import threading
import time

# The prefix of a command that has the least weight of all processes, in a session of its own. Linux
# weighs sessions first, and compares niceness inside a session only.
LEAST_WEIGHT = ["bash", "-c", '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@"', "bash"]
PATIENCE = 150  # in tenths of a second; nextest waits 10 seconds for its tests


def processes_of(session):
    """The processes of a session. Some have process groups of their own, as each test of nextest has."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True).stdout.splitlines()
    found = []
    for pid, state in map(str.split, listed):
        with contextlib.suppress(ProcessLookupError):
            found += [int(pid)] if not state.startswith("Z") and os.getsid(int(pid)) == session else []
    return found


def end_session(leader):
    """Ends all processes of the session that this child leads: first by SIGTERM, then by SIGKILL."""
    for number in [signal.SIGTERM, *[0] * PATIENCE, signal.SIGKILL]:
        leader.poll()
        left = processes_of(leader.pid)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if not left:
            break
        time.sleep(0.1)


LEADERS, LIGHT_LEADERS = set(), set()
STARTING, ENDED, WEIGHED = threading.Lock(), threading.Event(), threading.Event()


def end_sessions():
    """Ends the sessions that other threads of this program still run. They start no more."""
    with STARTING:
        ENDED.set()
    for leader in list(LEADERS):
        end_session(leader)


def weigh_sessions():
    """Gives the usual weight to the sessions that have the least, and to those that begin later."""
    WEIGHED.set()
    for leader in list(LIGHT_LEADERS):
        with contextlib.suppress(OSError), open(f"/proc/{leader.pid}/autogroup", "w") as weight:
            weight.write("0")


def run_session(command, limit, is_light=False, **options):
    """Runs a command in a session of its own, and ends what is left of it at its end or after `limit` seconds.

    Returns its status, or None if the limit ended it, and the output and the errors, if they are pipes.
    A light session has the least weight of all processes. After `end_sessions`, this ends the thread instead.
    """
    with STARTING:
        if ENDED.is_set():
            raise SystemExit
        is_light = is_light and not WEIGHED.is_set()
        command = [*(LEAST_WEIGHT if is_light else []), *command]
        leader = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, text=True, **options)
        LEADERS.add(leader)
        if is_light:
            LIGHT_LEADERS.add(leader)
    try:
        output, errors = leader.communicate(timeout=limit)
        return leader.returncode, output, errors
    except subprocess.TimeoutExpired:
        return None, "", ""
    finally:
        end_session(leader)
        LEADERS.discard(leader)
        LIGHT_LEADERS.discard(leader)
