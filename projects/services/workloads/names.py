"""Names that no workload or array of a project has used."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from projects.models import Project, Workload, WorkloadArray

NAME_MAX = 63
NUMBERED = re.compile(r"(?P<base>.+)-(?P<number>[1-9][0-9]{0,8})")
FIRST_RANGE, RANGE_GROWTH = 100, 10  # names in the first range, and how much larger each further range is
SUGGESTION_RANGES = 2  # number of ranges that are searched for a suggestion


def next_free_name(project: Project, name: str) -> str:
    """Return the first numbered name after `name` that the project has not used: `train-2` after `train`.

    A number in the name, as in `train-2`, is increased only if the project has also used `train`. Otherwise,
    the number is part of the name: `resnet-50` is followed by `resnet-50-2`.

    Even thousands of used names take only a few queries, because each range of numbers is ten times as large
    as the previous one. Errors call `free_name_to_suggest` instead.
    """
    return next(filter(None, _candidate_names(project, name)))


def free_name_to_suggest(project: Project, name: str) -> str:
    """Return the next free name, or "" if a few queries find none.

    The search is limited, because rejected submissions may be repeated many times.
    """
    return next(filter(None, islice(_candidate_names(project, name), SUGGESTION_RANGES)), "")


def free_name(project: Project, name: str) -> str:
    """Return `name`, or the next free name if the project has already used it."""
    return next_free_name(project, name) if _used_names(project, [name]) else name


def _candidate_names(project: Project, name: str) -> Iterator[str]:
    """Search for free names by increasing the number at the end of `name`, one range of numbers at a time.

    For each range, yield the first free name, or "" if the range contains no free name.
    """
    base, number = name, 1
    numbered = NUMBERED.fullmatch(name)
    if numbered is not None and _used_names(project, [numbered["base"]]):
        base, number = numbered["base"], int(numbered["number"])
    size = FIRST_RANGE
    while True:
        candidates = [_add_number(base, number + step) for step in range(1, size + 1)]
        used = _used_names(project, candidates)
        yield next((candidate for candidate in candidates if candidate not in used), "")
        number, size = number + size, size * RANGE_GROWTH


def _add_number(base: str, number: int) -> str:
    suffix = f"-{number}"
    return base[: NAME_MAX - len(suffix)] + suffix


def _used_names(project: Project, names: Iterable[str]) -> set[str]:
    """Return which of the `names` are used by a live or ended workload or array of the project."""
    models = (Workload, WorkloadArray)
    return {
        name
        for model in models
        for name in model._default_manager.filter(project=project, name__in=names).values_list(
            "name", flat=True
        )
    }
