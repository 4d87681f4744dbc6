"""Tests for distributing tests over processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.distribution import GroupScheduling, starts_last

TESTS = [
    "tests/browser/test_one.py::test_a",
    "tests/web/test_one.py::test_a[x::y/z]",
    "tests/browser/test_two.py::TestB::test_b",
    "tests/web/test_two.py::test_b",
    "tests/web/test_one.py::test_c",
]


class RecordingWorker:
    """Stands in for a worker process of pytest-xdist and records which tests it is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id=str(id(self)))

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += [TESTS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def test_tests_with_a_shared_setup_run_in_one_process(
    pytestconfig: pytest.Config,
) -> None:
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(
        option=option, getvalue=lambda _: ["popen", "popen"], rootpath=pytestconfig.rootpath
    )
    workers: list[Any] = [RecordingWorker(), RecordingWorker()]
    scheduling = GroupScheduling(config)
    for worker in workers:
        scheduling.add_node(worker)
    for worker in workers:
        scheduling.add_node_collection(worker, TESTS)
    scheduling.schedule()
    assert [worker.sent for worker in workers] == [
        [TESTS[0], TESTS[2], TESTS[3]],
        [TESTS[1], TESTS[4]],
    ]


def test_folders_with_a_shared_setup_start_first() -> None:
    assert sorted(TESTS, key=starts_last) == [TESTS[0], TESTS[2], TESTS[1], TESTS[3], TESTS[4]]
