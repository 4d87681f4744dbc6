"""Start Berth's processes like `berth.server.up.preload`, and record each step of a submission.

The web process and the scheduler each append one line per step to a file in the directory BERTH_BENCH_STEPS:
the Unix time and the thread's CPU time in seconds, the step and its details.
"""

import functools
import gc
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from berth.server.up import preload
from berth.server.up.preload import Program

STEPS = "BERTH_BENCH_STEPS"
SLOW_SECONDS = 0.003  # shorter steps of the loop and pauses of the garbage collector are not recorded


class Recorder:
    """Recorder for the steps of one process.

    Steps are written immediately, because a signal may end the process.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._collecting = 0.0

    def mark(self, step: str, details: object = "") -> None:
        self._file.write(f"{time.time():.6f}\t{time.thread_time():.6f}\t{step}\t{details}\n")

    def around(self, owner: Any, name: str, begin: str, end: str, details: Callable[..., object]) -> None:
        """Wrap `owner.name` to record the start and end of each call, with details from its arguments."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def recorded(*arguments: Any, **options: Any) -> Any:
            text = details(*arguments, **options)
            if begin:
                self.mark(begin, text)
            result = function(*arguments, **options)
            if end:
                self.mark(end, text)
            return result

        setattr(owner, name, recorded)

    def slow_calls(self, owner: Any, name: str, details: Callable[..., object]) -> None:
        """Wrap `owner.name` to record slow calls when they end."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def recorded(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds = time.perf_counter() - began
                if seconds >= SLOW_SECONDS:
                    self.mark("slow", f"{details(*arguments, **options)} {seconds * 1000:.0f} ms")

        setattr(owner, name, recorded)

    def watch_garbage_collection(self) -> None:
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
            return
        seconds = time.perf_counter() - self._collecting
        if seconds >= SLOW_SECONDS:
            self.mark("slow", f"garbage collection {info['generation']} {seconds * 1000:.0f} ms")


def record_web(recorder: Recorder) -> None:
    from berth.db.loops import wake

    recorder.around(wake, "_notify", "notify", "notified", lambda name, reasons: name)


def record_scheduler(recorder: Recorder) -> None:
    from berth.db.loops import crash_points
    from pools.runtimes.local import LocalRuntime
    from scheduler.loop import tick
    from scheduler.loop.leader import Scheduler

    crash_points.set_listener(recorder.mark)
    recorder.around(Scheduler, "trigger", "woken", "", lambda *_: "")
    recorder.around(tick.Loop, "observe", "tick", "", lambda loop, now, trigger, *_, **__: trigger)
    recorder.around(tick, "record_reports", "", "reported", lambda *_: "")
    recorder.around(LocalRuntime, "start", "order", "ordered", lambda runtime, order: order.pod_id)
    recorder.slow_calls(tick.Loop, "_run_safely", lambda loop, name, step: name)
    recorder.slow_calls(Scheduler, "keep_lease", lambda scheduler: "lease")


RECORDED = {"web": record_web, "scheduler": record_scheduler}


def timed(name: str, program: Program) -> Program:
    """Add step recording to the web and scheduler programs. Other programs are returned unchanged."""
    if name not in RECORDED:
        return program

    def run() -> None:
        recorder = Recorder(Path(os.environ[STEPS]) / name)
        recorder.watch_garbage_collection()
        RECORDED[name](recorder)
        program()

    return run


def main() -> None:
    programs = preload._programs

    def timed_programs(sockets: Sequence[Any]) -> dict[str, Program]:
        return {name: timed(name, program) for name, program in programs(sockets).items()}

    preload._programs = timed_programs
    preload.main()


if __name__ == "__main__":
    main()
