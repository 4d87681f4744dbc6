"""Poll the pods of all Ray nodes in the background."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping

from pools.runtimes.base import PodReport, PodState, RuntimeFailure

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
SOON_SECONDS = 0.2


class PodWatcher:
    """Background thread that polls the pods of all Ray nodes. The first call to `fds` starts it."""

    def __init__(
        self, get_reports: Callable[[], Mapping[str, PodReport]], fetch_log: Callable[[str], None]
    ) -> None:
        self._get_reports, self._fetch_log = get_reports, fetch_log
        self._soon = threading.Event()
        self._wake = -1
        self._last_reports: dict[str, PodReport] = {}

    def fds(self) -> tuple[int, ...]:
        if self._wake < 0:
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            threading.Thread(target=self._run, name="ray-watch", daemon=True).start()
        return (self._wake,)

    def clear_wakeups(self) -> None:
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)

    def request_poll(self) -> None:
        self._soon.set()

    def _run(self) -> None:
        while True:
            soon = self._soon.wait(EVERY_SECONDS)
            self._soon.clear()
            if soon:
                threading.Event().wait(SOON_SECONDS)
            try:
                self._poll()
            except Exception:
                log.exception("could not read the state of the pods of Ray pools")

    def _poll(self) -> None:
        reports = dict(self._get_reports())
        if reports != self._last_reports:
            self._last_reports = reports
            os.eventfd_write(self._wake, 1)
        for pod_id, report in reports.items():
            if report.state is PodState.EXITED:
                self._fetch(pod_id)

    def _fetch(self, pod_id: str) -> None:
        try:
            self._fetch_log(pod_id)
        except RuntimeFailure as failure:
            log.info("could not fetch the log of pod %s yet: %s", pod_id, failure)
