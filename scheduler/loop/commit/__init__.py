"""Commit a plan: check each bundle again under lock, then apply it entirely or not at all."""

from scheduler.loop.commit.apply import Outcome, commit

__all__ = ["Outcome", "commit"]
