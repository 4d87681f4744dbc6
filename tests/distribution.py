"""Distribution of the tests over processes: each process runs whole groups of tests."""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

# Folders with a setup that takes several seconds and is shared by all tests of one process.
SHARED_SETUP = {"browser", "journeys"}


class GroupScheduling(LoadScopeScheduling):
    """Runs the tests of each group in one process.

    pytest-xdist's own `--dist loadgroup` ignores groups under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)


def find_group(nodeid: str) -> str:
    """Return the file of a test, or its folder if the folder's tests share a server or a browser."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    folder = path.parts[1]  # below tests/
    return folder if folder in SHARED_SETUP else str(path)


def starts_last(nodeid: str) -> bool:
    """Return whether the test's group is one file. Whole folders take longest, so they start first."""
    return find_group(nodeid) not in SHARED_SETUP
