"""Names that no workload or array of a project has used."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from projects.models import Project, Workload, WorkloadArray

NAME_MAX = 63
NUMBERED = re.compile(r"(?P<base>.+)-(?P<number>[1-9][0-9]{0,8})")
FIRST_RANGE, RANGE_GROWTH = 100, 10  # size of the first range of names, and growth factor of further ranges
SUGGESTION_RANGES = 2  # number of ranges that are searched for a suggestion


def next_free_name(project: Project, name: str) -> str:
    """Return the first numbered name after `name` that the project has not used: `train-2` after `train`.

    The name after `resnet-50` is `resnet-50-2`, because the number may be part of the name. If the project
    has also used `resnet`, the next name is `resnet-51`.
    """
    return next(filter(None, _candidate_names(project, name)))


def free_name_to_suggest(project: Project, name: str) -> str:
    """Return the next free name, or "" if the first few queries find none."""
    return next(filter(None, islice(_candidate_names(project, name), SUGGESTION_RANGES)), "")


def free_name(project: Project, name: str) -> str:
    """Return `name`, or the next free name if the project has already used it."""
    return next_free_name(project, name) if _used_names(project, [name]) else name


def _candidate_names(project: Project, name: str) -> Iterator[str]:
    """Yield the first free name in each range of numbers, or "" if the range has none."""
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
    models = (Workload, WorkloadArray)
    return {
        name
        for model in models
        for name in model._default_manager.filter(project=project, name__in=names).values_list(
            "name", flat=True
        )
    }
