"""Tell a lost race, which can be retried, from an unavailable database."""

from django.db import Error
from psycopg.errors import DeadlockDetected, LockNotAvailable, SerializationFailure

LOST_RACES = (DeadlockDetected, SerializationFailure, LockNotAvailable)


def is_lost_race(error: Error) -> bool:
    """The connection lives on, and so does every transaction around the one that lost."""
    return isinstance(error.__cause__, LOST_RACES)
