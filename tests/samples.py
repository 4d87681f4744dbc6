"""Samples of parameters for `make test`. `make test-heavy` runs the other parameters."""

from collections.abc import Iterable
from typing import Any

import pytest


def sample(values: Iterable[Any], keep: int = 1) -> list[Any]:
    """Return the parameters. Those after the first `keep` are heavy. A tuple holds several arguments."""
    params = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.heavy])
        for value in values
    ]
    return [pytest.param(*param.values) if number < keep else param for number, param in enumerate(params)]
