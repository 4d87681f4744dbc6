"""Tests for the outcome of a call on its worker."""

import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from berth.worker import calls
from pools.plugins import Plugin

SIZE_LIMIT = 10_000


def run(
    function: Callable[..., Any], *args: Any, plugins: tuple[Plugin, ...] = (), **kwargs: Any
) -> calls.CallOutcome:
    return calls.run(cloudpickle.dumps((function, args, kwargs)), plugins, SIZE_LIMIT)


def test_remote_call_returns_the_result_of_the_function() -> None:
    outcome = run(lambda x, *, y: x + y, 1, y=2)
    assert (outcome.kind, cloudpickle.loads(outcome.data)) == ("value", 3)


def test_error_traceback_contains_only_user_code() -> None:
    def raises() -> None:
        raise LookupError("gone")

    outcome = run(raises)
    details = outcome.details
    assert (outcome.kind, details["type"], details["message"]) == ("error", "LookupError", "gone")
    assert isinstance(cloudpickle.loads(outcome.data), LookupError)
    assert 'raise LookupError("gone")' in outcome.details["traceback"]
    assert "berth/worker" not in outcome.details["traceback"]


def test_unpicklable_error_is_returned_as_text() -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("odd")

    def raises() -> None:
        raise Odd(1, 2)

    outcome = run(raises)
    assert (outcome.kind, outcome.details["message"], outcome.data) == ("error", "odd", b"")


def test_function_that_exits_ends_only_its_own_call() -> None:
    outcome = run(sys.exit, 3)
    assert (outcome.kind, outcome.details["type"]) == ("error", "SystemExit")


def test_unpicklable_or_oversized_values_are_reported() -> None:
    assert calls.run(b"garbage", (), SIZE_LIMIT).details["type"] == "NotReadable"
    assert run(lambda: (x for x in range(0))).details["type"] == "ResultNotPicklable"
    assert run(bytes, SIZE_LIMIT).details["type"] == "ResultTooLarge"


@pytest.mark.shows("PLG-13", "PLG-14", "PLG-16")
def test_first_decorator_is_outermost() -> None:
    def adding_plugin(name: str) -> Plugin:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: f"{name}({function(*args, name)})"

        return Plugin.create(name).with_decorate(decorate)

    def join_words(*args: str) -> str:
        return " ".join(args)

    outcome = run(join_words, "x", plugins=(adding_plugin("a"), adding_plugin("b")))
    assert cloudpickle.loads(outcome.data) == "a(b(x a b))"


def test_error_in_a_decorator_fails_the_call() -> None:
    def broken(function: Callable[..., Any]) -> Callable[..., Any]:
        raise ValueError("no")

    outcome = run(len, "abc", plugins=(Plugin.create("mine").with_decorate(broken),))
    assert outcome.details["message"] == "the plugin mine failed in decorate: ValueError: no"
