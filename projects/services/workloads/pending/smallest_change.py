"""Describe the smallest change that would let a pending workload start.

The scheduler registers its search function here.
"""

from typing import Protocol

from projects.models import Workload


class ChangeFinder(Protocol):
    def __call__(self, workload: Workload) -> str:
        """Return the smallest change as an unredacted sentence.

        Raises RateLimited if too many dry runs of the project are in progress.
        """
        ...


_finders: list[ChangeFinder] = []


def register_change_finder(finder: ChangeFinder) -> None:
    _finders[:] = [finder]


def unredacted_smallest_change(workload: Workload) -> str:
    """Return the smallest change as a sentence, unredacted and therefore only for platform admins.

    Raises RateLimited if too many dry runs of the project are in progress.
    """
    (find,) = _finders
    return find(workload)
