"""Here we let Python programs use Berth over REST; nothing of the server is needed."""

from berth.client.client import Client
from berth.client.config import Settings, load_settings
from berth.client.errors import (
    Ambiguous,
    ClientError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotSignedIn,
    RateLimited,
    Refused,
    ServerFailed,
    Unreachable,
)

__all__ = [
    "Ambiguous", "Client", "ClientError", "Conflict", "Forbidden", "Invalid", "NotFound", "NotSignedIn",
    "RateLimited", "Refused", "ServerFailed", "Settings", "Unreachable", "load_settings",
]  # fmt: skip
