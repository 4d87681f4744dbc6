"""Tests for the distribution of tests over processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.distribution import starts_last
from tests.harness.processes import groups_of

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/browser/test_one.py::test_a",
    "tests/web/test_one.py::test_a[x::y/z]",
    "tests/browser/test_two.py::TestB::test_b",
    "tests/web/test_two.py::test_b",
    "tests/web/test_one.py::test_c",
]
PASSES = """
import os
from pathlib import Path

def write(test, text): (Path.cwd() / f"{Path(__file__).stem}.{test}").write_text(text)
def test_first(tmp_path): write("first", f"{os.getpid()} {tmp_path}")
def test_second(): write("second", str(os.getpid()))
"""
FAILS = """
import logging
import os

log = logging.getLogger("own")
log.propagate = False
log.addHandler(logging.StreamHandler())  # writes to the file that captures the output of this import

def test_fails():
    print("captured output")
    log.warning("captured log")
    assert 1 == 2

def test_ends_the_process(): os._exit(3)
def test_does_not_run(): pass
"""

KILLED = """
import os
import signal
from pathlib import Path

def test_is_killed():
    if child := os.fork():
        Path("child").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
"""


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def run_tests(place: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with its output in a file, because a surviving child process would keep a pipe open."""
    (place / "tests" / "web").mkdir(parents=True)
    for name, text in files.items():
        (place / "tests" / "web" / f"test_{name}.py").write_text(text)
    plugins = ("tests.harness.processes", "no:cacheprovider", "no:django", "no:xdist")
    words = [word for name in plugins for word in ("-p", name)]
    with (place / "output").open("w+") as output:
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--rootdir={place}", *words, *options, "tests/web"],
            cwd=place,
            stdout=output,
            stderr=output,
            text=True,
            check=False,
            timeout=60,
        )
        output.seek(0)
        result.stdout = output.read()
    return result


def test_tests_with_a_shared_setup_run_in_one_process() -> None:
    groups = groups_of([Item(nodeid) for nodeid in TESTS])  # type: ignore[misc]
    assert [[item.nodeid for item in group] for group in groups] == [
        [TESTS[0], TESTS[2]],
        [TESTS[1], TESTS[4]],
        [TESTS[3]],
    ]


def test_test_folders_with_a_shared_setup_start_first() -> None:
    assert sorted(TESTS, key=starts_last) == [TESTS[0], TESTS[2], TESTS[1], TESTS[3], TESTS[4]]


@pytest.mark.heavy
def test_tests_that_stop_the_shared_installation_run_after_all_other_journeys() -> None:
    paths = [f"tests/journeys/{path}" for path in ("test_up.py", "test_secrets.py", "sessions", "code")]
    options = ("-q", "-p", "no:cacheprovider", "--collect-only", "-m", "heavy or not heavy")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [line.partition("::")[0] for line in result.stdout.splitlines() if "::" in line]
    first = files.index(paths[0])
    assert set(files[first:]) == {paths[0]}
    assert len({Path(file).parent.name for file in files[:first]}) == 3


@pytest.mark.heavy
def test_tests_of_a_file_run_in_one_forked_process_with_its_own_directory(tmp_path: Path) -> None:
    result = run_tests(tmp_path, "-n", "2", one=PASSES, two=PASSES)
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout
    for name in ("one", "two"):
        process, directory = (tmp_path / f"test_{name}.first").read_text().split()
        assert (tmp_path / f"test_{name}.second").read_text() == process
        assert Path(directory).parent.name in {"gw0", "gw1"}


@pytest.mark.heavy
def test_failed_tests_and_crashed_processes_fail_the_run(tmp_path: Path) -> None:
    result = run_tests(tmp_path, "-n", "2", one=FAILS, two=PASSES)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "2 failed, 2 passed" in result.stdout
    assert "captured output" in result.stdout
    assert "captured log" in result.stdout
    assert "Logging error" not in result.stdout
    assert "The process that ran this test ended. The tests that it had taken did not run." in result.stdout


@pytest.mark.heavy
def test_killed_process_fails_the_run_even_if_its_child_is_still_running(tmp_path: Path) -> None:
    try:
        result = run_tests(tmp_path, "-n", "2", one=KILLED)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "1 failed" in result.stdout


@pytest.mark.heavy
def test_no_further_tests_start_after_the_first_failure_if_requested(tmp_path: Path) -> None:
    result = run_tests(tmp_path, "-n", "1", "-x", one=FAILS, two=PASSES)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "1 failed" in result.stdout
    assert not list(tmp_path.glob("*.first"))
