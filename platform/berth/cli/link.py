"""Open the connection to the server for a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth.client import Client


@contextmanager
def connected() -> Iterator["Client"]:
    """The client is imported here so that `berth --help` need not wait for it."""
    from berth.client import Client

    with Client() as client:
        yield client
