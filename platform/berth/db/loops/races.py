"""Distinguish a lost race, which can be retried, from an unavailable database."""

from django.db import Error
from psycopg.errors import DeadlockDetected, LockNotAvailable, SerializationFailure

LOST_RACES = (DeadlockDetected, SerializationFailure, LockNotAvailable)


def is_lost_race(error: Error) -> bool:
    """Return whether a lost race caused the error. If so, the connection is still usable."""
    return isinstance(error.__cause__, LOST_RACES)
