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
from berth.client.sessions.unpicklable import is_picklable, unpicklable_part

FAILURES: Mapping[str, type[Exception]] = {
    "Interrupted": CallInterrupted, "SessionEnded": SessionEnded, "ResultTooLarge": CallTooLarge,
}  # fmt: skip


def pickle_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], max_bytes: int
) -> bytes:
    """Pickle a call. Raises NotPicklable or CallTooLarge."""
    try:
        data: bytes = cloudpickle.dumps((function, args, dict(kwargs)))
    except Exception as error:
        raise _not_picklable_error(function, args, kwargs, error) from error
    if len(data) > max_bytes:
        text = f"The call to {function_name(function)} has {len(data)} bytes, including arguments"
        raise CallTooLarge(
            f"{text}, but the maximum is {max_bytes} bytes. Store large data elsewhere and pass its location."
        )
    return data


def decode_outcome(header: Mapping[str, Any], data: bytes) -> tuple[Any, BaseException | None]:
    """Decode the outcome of a call. Return (value, None) or (None, error)."""
    details = header.get("error") or {}
    message = str(details.get("message", ""))
    if header["outcome"] == "value":
        return _unpickle_value(data)
    if header["outcome"] == "error":
        return None, _unpickle_error(details, data)
    error = FAILURES.get(str(details.get("type")), CallFailed)(message)
    if text := details.get("traceback"):
        error.__cause__ = RemoteTraceback(str(text))
    return None, error


def function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _unpickle_value(data: bytes) -> tuple[Any, BaseException | None]:
    try:
        return pickle.loads(data), None  # noqa: S301 (the data comes from the user's own session)
    except Exception as error:
        problem = CallFailed(f"the result cannot be unpickled here: {type(error).__qualname__}: {error}")
        problem.__cause__ = error
        return None, problem


def _unpickle_error(details: Mapping[str, Any], data: bytes) -> BaseException:
    try:
        unpickled = pickle.loads(data) if data else None  # noqa: S301
    except Exception:
        unpickled = None
    if not isinstance(unpickled, Exception):  # SystemExit, for example, would end the calling program
        unpickled = RemoteError(f"{details.get('type', 'error')}: {details.get('message', '')}")
    unpickled.__cause__ = RemoteTraceback(str(details.get("traceback", "")))
    return unpickled


def _not_picklable_error(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> NotPicklable:
    candidates = [(function_name(function), function)]
    candidates += [(f"argument {number}", value) for number, value in enumerate(args)]
    candidates += [(f"argument {key}", value) for key, value in kwargs.items()]
    for name, value in candidates:
        if not is_picklable(value):
            where, part = unpicklable_part(value, name)
            text = f"{where} cannot be pickled: it is {_describe(part)}"
            return NotPicklable(f"{text}. Create it inside the function, or send the values it needs.")
    return NotPicklable(f"The call to {function_name(function)} cannot be pickled: {error}")


def _describe(part: object) -> str:
    kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    try:
        return f"a {kind}: {part!r:.120}"
    except Exception:
        return f"a {kind}"
