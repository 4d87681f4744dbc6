"""Providers and runtimes offered to people; fakes only in tests."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from pools.models import NodePool

KINDS = {"provider": NodePool.Provider, "runtime": NodePool.Runtime}
FAKE = "fake"


def offered(field: str, present: str = "") -> list[tuple[str, str]]:
    """The choices of `provider` or `runtime`; what a pool has at `present` stays one of its own."""
    return [
        (value, str(label))
        for value, label in KINDS[field].choices
        if value != FAKE or value == present or settings.BERTH_FAKE_POOLS
    ]


def check_offered(pool: NodePool, given: Mapping[str, Any]) -> None:
    """In the words of any other choice that there is not. A pool that has a fake already may be changed."""
    problems = [
        Problem(field, "is not one of the choices", shown(given[field]), _words(field))
        for field in KINDS
        if given.get(field) == FAKE
        and FAKE not in (value for value, _ in offered(field, getattr(pool, field)))
    ]
    if problems:
        raise Invalid(problems)


def _words(field: str) -> str:
    *others, last = (repr(value) for value, _ in offered(field))
    return f"{', '.join(others)} or {last}"
