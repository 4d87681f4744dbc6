"""Providers and runtimes offered to users; fakes only in tests."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from pools.models import NodePool

KINDS = {"provider": NodePool.Provider, "runtime": NodePool.Runtime}
FAKE = "fake"


def offered(field: str, present: str = "") -> list[tuple[str, str]]:
    """Return the choices of `provider` or `runtime`, including the pool's `present` one."""
    return [
        (value, str(label))
        for value, label in KINDS[field].choices
        if value != FAKE or value == present or settings.BERTH_FAKE_POOLS
    ]


def check_offered(pool: NodePool, values: Mapping[str, Any]) -> None:
    """Raise Invalid for a fake that is not offered. A pool that already uses a fake may be edited."""
    problems = [
        Problem(field, "is not one of the choices", shown(values[field]), _words(field))
        for field in KINDS
        if values.get(field) == FAKE
        and FAKE not in (value for value, _ in offered(field, getattr(pool, field)))
    ]
    if problems:
        raise Invalid(problems)


def _words(field: str) -> str:
    *others, last = (repr(value) for value, _ in offered(field))
    return f"{', '.join(others)} or {last}"
