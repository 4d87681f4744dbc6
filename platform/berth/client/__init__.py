"""Python client of the REST API, without any server code."""

from berth.client.aio.client import AsyncClient
from berth.client.client import Client
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
    Refused,
    RemoteError,
    RemoteTraceback,
    ServerFailed,
    SessionEnded,
    SessionError,
    Unreachable,
)

__all__ = [
    "Ambiguous", "AsyncClient", "CallFailed", "CallInterrupted", "CallTooLarge", "Client", "ClientError",
    "Conflict", "Forbidden", "Invalid", "NotFound", "NotPicklable", "NotSignedIn", "RateLimited", "Refused",
    "RemoteError", "RemoteTraceback", "ServerFailed", "SessionEnded", "SessionError", "Settings",
    "Unreachable", "load_settings",
]  # fmt: skip
