"""Select a sample of test parameters for `make test`. `make test-heavy` runs the other parameters.

Of a parametrized test that uses the database, `make test` runs the first case and the cases that show
behaviours of their own. The mark `every_case` keeps all cases, for example for isolation between tenants.
"""

from collections.abc import Iterable
from typing import Any

import pytest

DATABASE_FIXTURES = {"db", "transactional_db", "live_server"}


def sample(values: Iterable[Any], keep: int = 1) -> list[Any]:
    """Return the parameters. All after the first `keep` are marked as heavy. A tuple holds several
    arguments.
    """
    params = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.heavy])
        for value in values
    ]
    return [pytest.param(*param.values) if number < keep else param for number, param in enumerate(params)]


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Mark all cases after the first as heavy in parametrized tests that use the database."""
    sampled: set[str] = set()
    for item in items:
        case = getattr(item, "callspec", None)
        if case is None or not _uses_database(item) or item.get_closest_marker("every_case"):
            continue
        if item.get_closest_marker("heavy"):
            continue
        test = item.nodeid.partition("[")[0]
        if test in sampled and not any(mark.name == "shows" for mark in case.marks):
            item.add_marker(pytest.mark.heavy)
        sampled.add(test)


def _uses_database(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return not DATABASE_FIXTURES.isdisjoint(fixtures) or item.get_closest_marker("django_db") is not None
