"""Keep rows and running pods in sync: record ended pods, and start and stop pods that are due.

Each step reads its input from the database and can be repeated, so the next tick completes any
work that a crash interrupted. Runtimes are never called while a transaction is open.
"""

from scheduler.loop.dispatch.pods import start_pods, stop_pods
from scheduler.loop.dispatch.reports import ReportSummary, record_reports

__all__ = ["ReportSummary", "record_reports", "start_pods", "stop_pods"]
