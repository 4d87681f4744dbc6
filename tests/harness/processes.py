"""Run the tests in several processes. They are forked after a single process has collected the tests.

Collecting the tests imports all modules, which takes more than ten seconds of CPU time. Each worker of
pytest-xdist would repeat that. The workers of this module take groups of tests from one pipe, and each worker
sends its reports over another.
"""

import os
import pickle
import struct
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

import pytest
from _pytest.capture import FDCapture

from tests.harness.distribution import PROCESS_VARIABLE, find_group

NUMBER = struct.Struct("i")
Group = list[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    text = 'run the tests in this many processes; "auto": two more than there are cores'
    parser.getgroup("processes")._addoption("-n", "--processes", type=process_count, default=0, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes if all could be collected."""
    option = session.config.option
    if not option.processes or option.collectonly or session.testsfailed or not session.items:
        return None
    run_in_processes(session, option.processes)
    return True


def process_count(text: str) -> int:
    # Two more processes than there are cores, because many tests mostly wait for other processes.
    return (os.cpu_count() or 1) + 2 if text == "auto" else int(text)


def groups_of(items: list[pytest.Item]) -> list[Group]:
    """Return groups of tests that run in one process each, ordered by their first tests."""
    groups: dict[str, Group] = {}
    for item in items:
        groups.setdefault(find_group(item.nodeid), []).append(item)
    return list(groups.values())


@dataclass
class Worker:
    """A process that runs tests. `exited` becomes readable once it has ended.

    The end of the pipe does not show this, because a process that a test started may keep the pipe open.
    """

    pid: int
    exited: int
    pipe: int
    running: pytest.Item
    has_finished: bool = False
    received: bytearray = field(default_factory=bytearray)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the complete messages in the pipe without waiting for more."""
        with suppress(BlockingIOError):
            while data := os.read(self.pipe, 1 << 16):
                self.received += data
        while len(self.received) >= NUMBER.size:
            end = NUMBER.size + NUMBER.unpack_from(self.received)[0]
            if len(self.received) < end:
                return
            message = bytes(self.received[NUMBER.size : end])
            del self.received[:end]
            yield pickle.loads(message)


def run_in_processes(session: pytest.Session, count: int) -> None:
    """Run the collected tests in `count` processes and report their results in this process."""
    assert threading.active_count() == 1, "A test module started a thread, which would not survive a fork."
    groups = groups_of(session.items)
    directory = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    queue, filling = os.pipe()
    os.write(filling, b"".join(NUMBER.pack(number) for number in range(len(groups))))
    os.close(filling)
    workers: list[Worker] = []
    try:
        for number in range(count):
            workers.append(_start(session, groups, queue, directory / f"gw{number}", workers))
        _report(session, workers, queue)
    finally:
        os.close(queue)
        for worker in workers:
            os.close(worker.pipe)
            os.waitpid(worker.pid, 0)
            os.close(worker.exited)


def _start(
    session: pytest.Session, groups: list[Group], queue: int, directory: Path, others: list[Worker]
) -> Worker:
    receiving, sending = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(sending)
        os.set_blocking(receiving, False)
        return Worker(pid, os.pidfd_open(pid), receiving, session.items[0])
    try:
        for pipe in [receiving, *(worker.pipe for worker in others)]:
            os.close(pipe)
        _separate(session.config, directory)
        _Work(session, sending).run(_take(groups, queue))
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt | BrokenPipeError):
            traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _separate(config: pytest.Config, directory: Path) -> None:
    """Give this process a name, a temporary directory and files for captured output, but no terminal."""
    os.environ[PROCESS_VARIABLE] = directory.name
    # pytest-django reads this attribute.
    config.workerinput = {"workerid": directory.name}  # type: ignore[attr-defined]
    directory.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
    config.pluginmanager.unregister(name="terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for stream in (capture.out, capture.err):
        if isinstance(stream, FDCapture):
            # Log handlers keep the file object, so another file takes the place of the one behind it.
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())


def _take(groups: list[Group], queue: int) -> Iterator[pytest.Item]:
    """Yield the tests of the next group in the queue until the queue is empty.

    Each group reaches one process.
    """
    while number := os.read(queue, NUMBER.size):
        yield from groups[NUMBER.unpack(number)[0]]


class _Work:
    """Runs tests in a worker and sends their reports to the first process."""

    def __init__(self, session: pytest.Session, pipe: int) -> None:
        self.session = session
        self.pipe = pipe
        self.numbers = {item: number for number, item in enumerate(session.items)}

    def run(self, items: Iterator[pytest.Item]) -> None:
        hook = self.session.config.hook
        self.session.config.pluginmanager.register(self)
        item = next(items, None)
        try:
            while item is not None and not (self.session.shouldfail or self.session.shouldstop):
                self.send("start", self.numbers[item])
                upcoming = next(items, None)
                hook.pytest_runtest_protocol(item=item, nextitem=upcoming)
                item = upcoming
        finally:
            self.session._setupstate.teardown_exact(None)
        self.send("end")

    def send(self, event: str, value: Any = None) -> None:
        content = pickle.dumps((event, value))
        message = memoryview(NUMBER.pack(len(content)) + content)
        while message:
            message = message[os.write(self.pipe, message) :]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self.send("report", data)

    def pytest_runtest_logfinish(self) -> None:
        self.send("finish")

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        if when != "runtest":
            return  # the first process has recorded it, too
        text = warnings.WarningMessage(
            UserWarning(f"{warning_message.category.__name__}: {warning_message.message}"),
            UserWarning,
            warning_message.filename,
            warning_message.lineno,
        )
        self.send("warning", (text, when, nodeid, location))


def _report(session: pytest.Session, workers: list[Worker], queue: int) -> None:
    """Forward the workers' reports until all workers have ended."""
    working = {fd: worker for worker in workers for fd in (worker.pipe, worker.exited)}
    while working:
        for fd in wait(list(working)):
            worker = working.get(cast("int", fd))
            if worker is None:
                continue  # both of its descriptors were ready
            for event, value in worker.messages():
                _pass_on(session, worker, event, value)
            if fd == worker.exited:
                del working[worker.pipe], working[worker.exited]
                if not worker.has_finished:
                    _pass_on(session, worker, "crash", None)
        if session.shouldfail or session.shouldstop:
            while os.read(queue, 4096):
                pass  # no worker starts another group


def _pass_on(session: pytest.Session, worker: Worker, event: str, value: Any) -> None:
    item, config = worker.running, session.config
    match event:
        case "end":
            worker.has_finished = True
        case "start":
            worker.running = session.items[value]
        case "report":
            report = config.hook.pytest_report_from_serializable(config=config, data=value)
            item.ihook.pytest_runtest_logreport(report=report)
        case "finish":
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        case "warning":
            message, when, nodeid, location = value
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            )
        case "crash":
            text = "The process that ran this test ended. The tests that it had taken did not run."
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            item.ihook.pytest_runtest_logreport(report=report)
