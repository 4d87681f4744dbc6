"""Faults at random times: processes that are killed, hang or fail while workloads run."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.journeys.installation import Installation, command_line

Pids = Callable[[], Iterable[int]]
PARTS = ("scheduler", "web", "tasks", "services", "preload", "database")
PAUSE_MAX = 6.0  # maximum seconds between two faults
HANGS_FOR = 3  # a process that hangs continues after at most this many further faults


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `inject` returns what it did, or an empty string if there was no target."""

    name: str
    inject: Callable[[Random], str]
    weight: int = 1


@dataclass
class Hanging:
    """Processes that are stopped by a signal and resumed later."""

    pids: list[int] = field(default_factory=list)

    def hang(self, name: str, find: Pids, weight: int = 1) -> Fault:
        def inject(random: Random) -> str:
            pids = sorted(set(find()) - set(self.pids))
            if not pids:
                return ""
            pid = random.choice(pids)
            _send(pid, signal.SIGSTOP)
            self.pids.append(pid)
            return _describe(pid)

        return Fault(f"{name} hangs", inject, weight)

    def resume(self, keep: int = 0) -> None:
        """Resume all stopped processes except the latest."""
        while len(self.pids) > keep:
            _send(self.pids.pop(0), signal.SIGCONT)


def kill(name: str, find: Pids, weight: int = 1, then: Callable[[], object] = lambda: None) -> Fault:
    """Return a fault that kills one of the processes and then calls `then`."""

    def inject(random: Random) -> str:
        pids = sorted(find())
        if not pids:
            return ""
        pid = random.choice(pids)
        text = _describe(pid)
        _send(pid, signal.SIGKILL)
        then()
        return text

    return Fault(f"{name} is killed", inject, weight)


def kill_berth(berth: Installation, start: Callable[[], object]) -> list[Fault]:
    """Return the faults that kill each process of an installation, and the fault that kills all of them
    at once.
    """

    def part(name: str) -> Pids:
        return lambda: [pid for child, pid in berth.children().items() if child == name]

    def kill_all(_: Random) -> str:
        berth.end(signal.SIGKILL)
        start()
        return f"restarted as {berth.process.pid if berth.process else 0}"

    loop = {"scheduler": 5}  # holds the state that a kill could lose
    faults = [kill(f"{name} of Berth", part(name), loop.get(name, 1)) for name in PARTS]
    return [*faults, Fault("all of Berth is killed", kill_all)]


def inject_random_faults(
    faults: Sequence[Fault], hanging: Hanging, random: Random, count: int, between: Callable[[], None]
) -> list[str]:
    """Cause `count` faults with random pauses, and describe each. `between` keeps the system busy."""
    done: list[str] = []
    while len(done) < count:
        between()
        time.sleep(random.uniform(0, PAUSE_MAX))
        [fault] = random.choices(faults, [fault.weight for fault in faults])
        if text := fault.inject(random):
            done.append(f"{fault.name}: {text}")
            print(f"{time.strftime('%H:%M:%S')} {len(done):3} {done[-1]}", flush=True)
        hanging.resume(keep=random.randrange(HANGS_FOR))
    hanging.resume()
    return done


def find_processes(pids: Iterable[int], *words: str) -> list[int]:
    """Return the processes whose command line contains all words."""
    return [pid for pid in pids if all(word in command_line(pid) for word in words)]


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _describe(pid: int) -> str:
    return f"{pid} {command_line(pid).strip()[-70:]}"
