"""Serialize calls and deserialize their outcomes."""

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from berth.client.errors import (
    CallFailed,
    CallInterrupted,
    CallTooLarge,
    NotPicklable,
    RemoteError,
    RemoteTraceback,
    SessionEnded,
)
from berth.client.sessions.unpicklable import can_be_pickled, unpicklable_part

FAILURES: Mapping[str, type[Exception]] = {
    "Interrupted": CallInterrupted, "SessionEnded": SessionEnded, "ResultTooLarge": CallTooLarge,
}  # fmt: skip


def pickle_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int
) -> bytes:
    """Return the pickled call. Raises NotPicklable or CallTooLarge."""
    try:
        data: bytes = cloudpickle.dumps((function, args, dict(kwargs)))
    except Exception as error:
        raise _not_picklable(function, args, kwargs, error) from error
    if len(data) > most:
        text = f"The call of {name_of(function)} has {len(data)} bytes with its arguments"
        raise CallTooLarge(f"{text}; the maximum is {most}. Store large data and send its location.")
    return data


def outcome_of(words: Mapping[str, Any], data: bytes) -> tuple[Any, BaseException | None]:
    """Return the value and None, or None and the error."""
    details = words.get("error") or {}
    message = str(details.get("message", ""))
    if words["outcome"] == "value":
        return _opened_value(data)
    if words["outcome"] == "error":
        return None, _opened_error(details, data)
    error = FAILURES.get(str(details.get("type")), CallFailed)(message)
    if text := details.get("traceback"):
        error.__cause__ = RemoteTraceback(str(text))
    return None, error


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _opened_value(data: bytes) -> tuple[Any, BaseException | None]:
    try:
        return pickle.loads(data), None  # noqa: S301, it is of our own session
    except Exception as error:
        problem = CallFailed(f"the result cannot be opened here: {type(error).__qualname__}: {error}")
        problem.__cause__ = error
        return None, problem


def _opened_error(details: Mapping[str, Any], data: bytes) -> BaseException:
    try:
        opened = pickle.loads(data) if data else None  # noqa: S301
    except Exception:
        opened = None
    if not isinstance(opened, Exception):  # for example SystemExit, which would end the caller
        opened = RemoteError(f"{details.get('type', 'error')}: {details.get('message', '')}")
    opened.__cause__ = RemoteTraceback(str(details.get("traceback", "")))
    return opened


def _not_picklable(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> NotPicklable:
    named = [(name_of(function), function)]
    named += [(f"argument {number}", value) for number, value in enumerate(args)]
    named += [(f"argument {key}", value) for key, value in kwargs.items()]
    for name, value in named:
        if not can_be_pickled(value):
            where, part = unpicklable_part(value, name)
            text = f"{where} cannot be pickled, it is {_shown(part)}"
            return NotPicklable(f"{text}. Make it inside the function, or send what it is made from.")
    return NotPicklable(f"The call of {name_of(function)} cannot be pickled: {error}")


def _shown(part: object) -> str:
    kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    try:
        return f"a {kind}: {part!r:.120}"
    except Exception:
        return f"a {kind}"
