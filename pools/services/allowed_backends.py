"""Providers and runtimes that users may choose. Fakes are offered only in tests."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from pools.models import NodePool

KINDS = {"provider": NodePool.Provider, "runtime": NodePool.Runtime}
FAKE = "fake"


def form_choices(field: str, current: str = "") -> list[tuple[str, str]]:
    """Return the form choices for `provider` or `runtime`, always including `current`."""
    return [
        (value, str(label))
        for value, label in KINDS[field].choices
        if value != FAKE or value == current or settings.BERTH_FAKE_POOLS
    ]


def check_fakes_are_allowed(pool: NodePool, values: Mapping[str, Any]) -> None:
    """Raise Invalid if the values select a fake provider or runtime that is not offered.

    A pool that already uses one may be edited.
    """
    problems = [
        Problem(field, "is not an allowed value", format_value(values[field]), _suggest_choice(field))
        for field in KINDS
        if values.get(field) == FAKE
        and FAKE not in (value for value, _ in form_choices(field, getattr(pool, field)))
    ]
    if problems:
        raise Invalid(problems)


def _suggest_choice(field: str) -> str:
    return suggest(FAKE, [value for value, _ in form_choices(field)])
