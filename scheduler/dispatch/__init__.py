"""Bring rows and running pods together: record what ended, start and stop what is due.

Everything works from rows and may be done again: a crash between a row and its process heals by itself.
Runtimes are never called while a transaction is open.
"""

from scheduler.dispatch.machines import start_pods, stop_pods
from scheduler.dispatch.reports import TakenIn, take_in

__all__ = ["TakenIn", "start_pods", "stop_pods", "take_in"]
