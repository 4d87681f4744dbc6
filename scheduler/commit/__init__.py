"""Here a plan becomes rows: each bundle is judged again under lock, and goes in whole or not at all."""

from scheduler.commit.apply import Outcome, commit

__all__ = ["Outcome", "commit"]
