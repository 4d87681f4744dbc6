"""Commit a plan: recheck each bundle under locks, then apply it in full or not at all."""

from scheduler.loop.commit.apply import CommitOutcome, commit

__all__ = ["CommitOutcome", "commit"]
