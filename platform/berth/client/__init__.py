"""Python client for the REST API, without any server code."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berth.client.aio.client import AsyncClient
    from berth.client.config import Settings, load_settings
    from berth.client.errors import (
        Ambiguous,
        CallFailed,
        CallInterrupted,
        CallTooLarge,
        ClientError,
        Conflict,
        Forbidden,
        Invalid,
        NotFound,
        NotPicklable,
        NotSignedIn,
        RateLimited,
        Rejected,
        RemoteError,
        RemoteTraceback,
        ServerFailed,
        SessionEnded,
        SessionError,
        Unreachable,
    )
    from berth.client.sync.client import Client

__all__ = [
    "Ambiguous", "AsyncClient", "CallFailed", "CallInterrupted", "CallTooLarge", "Client", "ClientError",
    "Conflict", "Forbidden", "Invalid", "NotFound", "NotPicklable", "NotSignedIn", "RateLimited", "Rejected",
    "RemoteError", "RemoteTraceback", "ServerFailed", "SessionEnded", "SessionError", "Settings",
    "Unreachable", "load_settings",
]  # fmt: skip
_MODULES = {
    "AsyncClient": "aio.client",
    "Client": "sync.client",
    "Settings": "config",
    "load_settings": "config",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because most programs need only one of the two clients."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
