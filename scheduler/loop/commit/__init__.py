"""Commit a plan: check each bundle again under lock, and apply it whole or not at all."""

from scheduler.loop.commit.apply import Outcome, commit

__all__ = ["Outcome", "commit"]
