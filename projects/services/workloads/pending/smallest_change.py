"""Describe the smallest change that would let a pending workload start.

The scheduler depends on this package, so it registers its search function here.
"""

from typing import Protocol

from projects.models import Workload


class ChangeFinder(Protocol):
    def __call__(self, workload: Workload) -> str:
        """Return the unredacted sentence that describes the smallest change. For platform admins only.

        Raises RateLimited while too many of the project's dry runs are in progress.
        """
        ...


_finders: list[ChangeFinder] = []


def register_change_finder(finder: ChangeFinder) -> None:
    _finders[:] = [finder]


def unredacted_smallest_change(workload: Workload) -> str:
    """Return the unredacted sentence that describes the smallest change. For platform admins only.

    Raises RateLimited while too many of the project's dry runs are in progress.
    """
    (find,) = _finders
    return find(workload)
