"""Test that running pods end with Berth, on Ctrl-C and when it is killed."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.command import sign_in
from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.timeout(300)

# Saves its work on SIGTERM, as a trainer does.
SAVES = "trap 'echo saved; touch saved; exit 0' TERM; echo working; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def berth() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="berth-pods-") as place:
        installation = Installation(Path(place) / "home")
        yield installation
        installation.clear()


def pods(berth: Installation) -> list[int]:
    return [pid for pid, line in berth.processes().items() if "trap 'echo saved" in line]


def saved(berth: Installation) -> int:
    return len(list(berth.home.rglob("saved")))


def test_pods_end_with_berth_and_workloads_restart_with_it(berth: Installation, tmp_path: Path) -> None:
    berth.start("--demo")
    dave = sign_in(berth, "dave", tmp_path / "dave")
    dave.berth(
        "submit",
        "-n",
        "work",
        "-p",
        "vision",
        "--replicas",
        "2",
        "--gpu",
        "1",
        "--cpu",
        "0.1",
        "--memory",
        "64",
        "--grace",
        "20s",
        "--",
        "sh",
        "-c",
        SAVES,
    )
    until(lambda: len(pods(berth)) == 2)
    assert berth.end(signal.SIGINT) == 0
    assert berth.processes() == {}
    assert saved(berth) > 0

    berth.start()
    until(lambda: len(pods(berth)) == 2)
    berth.end(signal.SIGKILL)
    until(lambda: not berth.processes())
