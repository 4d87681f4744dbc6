"""Distribute whole groups of tests over processes."""

from pathlib import PurePosixPath

# Folders with a setup that takes several seconds and is shared by all tests of one process.
SHARED_SETUP = {"browser", "journeys"}
# Environment variable that names this process if the tests run in several.
PROCESS_VARIABLE = "BERTH_TEST_PROCESS"


def find_group(nodeid: str) -> str:
    """Return a test's file, or its folder if the tests in the folder share a server or a browser."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    folder = path.parts[1]  # name of the folder below tests/
    return folder if folder in SHARED_SETUP else str(path)


def starts_last(nodeid: str) -> bool:
    """Return whether a test's group is a single file. Groups that are folders take longer and start first."""
    return find_group(nodeid) not in SHARED_SETUP
