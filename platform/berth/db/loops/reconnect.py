"""Reconnect long-lived threads to the database after a server restart.

Django replaces a failed connection only between requests, and these threads handle no requests.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connection

P = ParamSpec("P")
R = TypeVar("R")


def reconnect_after_failure(query: Callable[P, R]) -> Callable[P, R]:
    """Decorator for database reads in long-lived threads.

    If the connection fails, the error is raised, and the next query of the thread reconnects.
    """

    @wraps(query)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return query(*args, **kwargs)
        except (OperationalError, InterfaceError):
            if not connection.in_atomic_block:
                connection.close()
            raise

    return run
