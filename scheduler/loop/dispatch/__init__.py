"""Keep rows and running pods in sync: record ended pods, and start and stop pods that are due.

Each step can be repeated after a crash. Runtimes are never called while a transaction is open.
"""

from scheduler.loop.dispatch.pods import start_pods, stop_pods
from scheduler.loop.dispatch.reports import ReportSummary, record_reports

__all__ = ["ReportSummary", "record_reports", "start_pods", "stop_pods"]
