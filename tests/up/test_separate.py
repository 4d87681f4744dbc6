"""Tests for calls in a forked process."""

import os
import signal
import subprocess
import sys

import pytest

from berth.server.up.errors import StartupError
from berth.server.up.supervision.fork_call import call_in_fork


def test_result_of_a_forked_call_is_returned() -> None:
    assert call_in_fork(os.getppid) == os.getpid()


def test_error_in_a_forked_call_is_raised_in_the_calling_process() -> None:
    def fail() -> None:
        raise StartupError("BERTH_ISOLATION is 'yes'.")

    with pytest.raises(StartupError, match="BERTH_ISOLATION is 'yes'"):
        call_in_fork(fail)


def test_startup_fails_if_a_forked_call_is_killed() -> None:
    with pytest.raises(StartupError, match="ended early"):
        call_in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_unexpected_error_in_a_forked_call_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartupError, match="Fix any error above"):
        call_in_fork(lambda: 1 / 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_forked_call_does_not_change_the_calling_process() -> None:
    changes: list[int] = []
    call_in_fork(lambda: changes.append(1))
    assert not changes


def test_supervisor_does_not_load_libraries_needed_only_at_startup() -> None:
    code = (
        "import sys, berth.server.up.start; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"asyncio", "django", "hashlib", "http", "pools", "psycopg", "ssl"} & set(loaded.split())
