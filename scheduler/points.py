"""Crash points of the scheduler, for tests."""

from berth.db.points import listen, outside_transactions, point

__all__ = ["listen", "outside_transactions", "point"]
