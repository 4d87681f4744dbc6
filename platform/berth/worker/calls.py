"""Unpack a call, run it with the session's plugins, and pack its outcome."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from berth.worker.session_ray import is_ray_system_failure
from pools.plugins.base import Plugin
from pools.plugins.compose import decorate_all

TEXT_MAX = 60_000


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a call.

    Kinds: value, error (the function raised), failed (the call did not run) and interrupted.
    """

    kind: str
    details: dict[str, str] = field(default_factory=dict)
    data: bytes = b""


def run(payload: bytes, plugins: Sequence[Plugin], result_bytes_max: int) -> CallOutcome:
    """Run a call and return its outcome. Errors are returned as outcomes too.

    Results are limited to `result_bytes_max` bytes.
    """
    try:
        function, args, kwargs = cloudpickle.loads(payload)
    except BaseException as error:  # unpickling may raise any error
        return failed_outcome("NotReadable", "the function could not be unpickled on the worker", error)
    try:
        value = decorate_all(plugins, function)(*args, **kwargs)
    except KeyboardInterrupt:
        return interrupted_outcome("the node was removed")
    except BaseException as error:
        if is_ray_system_failure(error):
            cause = f"{type(error).__qualname__}: {_error_text(error)}"
            return interrupted_outcome(f"Ray lost a node or process: {cause}"[:2000])
        return error_outcome(error, result_bytes_max)
    try:
        data = cloudpickle.dumps(value)
    except BaseException as error:
        what = f"the result, of type {type(value).__qualname__}, cannot be pickled"
        return failed_outcome("ResultNotPicklable", what, error)
    return (
        CallOutcome("value", data=data)
        if len(data) <= result_bytes_max
        else _too_large_outcome("result", len(data), result_bytes_max)
    )


def error_outcome(error: BaseException, result_bytes_max: int) -> CallOutcome:
    """Return the outcome for an error that the function raised.

    If possible, the outcome includes the pickled error.
    """
    details = _error_details(type(error).__qualname__, _error_text(error), error)
    try:
        data = cloudpickle.dumps(error)
        cloudpickle.loads(data)  # many errors can be pickled but not unpickled
    except BaseException:
        data = b""
    return CallOutcome("error", details, data if len(data) <= result_bytes_max else b"")


def failed_outcome(kind: str, what: str, error: BaseException) -> CallOutcome:
    advice = plugin_hint(error) if kind == "PluginFailed" else ""
    message = f"{what}: {type(error).__qualname__}: {_error_text(error)}{advice}"
    return CallOutcome("failed", _error_details(kind, message, error))


def plugin_hint(error: BaseException) -> str:
    """Return advice about a plugin's error, or an empty string."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    return (
        f". No plugin installs {package}: add its package in the plugin's transform, "
        "or to `environment.pip` of the pool"
    )


def interrupted_outcome(why: str) -> CallOutcome:
    return CallOutcome("interrupted", {"type": "Interrupted", "message": why})


def _too_large_outcome(what: str, size: int, result_bytes_max: int) -> CallOutcome:
    text = (
        f"the {what} has {size} bytes, but the maximum is {result_bytes_max}. "
        f"Store the {what} elsewhere and return its location"
    )
    return CallOutcome("failed", {"type": "ResultTooLarge", "message": text})


def _error_details(kind: str, message: str, error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(type(error), error, _user_traceback(error))
    return {"type": kind, "message": message[-4_000:], "traceback": "".join(lines)[-TEXT_MAX:]}


def _user_traceback(error: BaseException) -> Any:
    """Return the traceback without the first frame, which belongs to Berth."""
    at = error.__traceback__
    return at.tb_next if at is not None and at.tb_next is not None else at


def _error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(error message not available: {type(broken).__qualname__})"
