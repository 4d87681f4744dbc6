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


class Watch:
    """Begins when somebody asks for something to wait on; ends with the process."""

    def __init__(
        self, look: Callable[[], Mapping[str, PodReport]], bring_home: Callable[[str], None]
    ) -> None:
        self._look, self._bring_home = look, bring_home
        self._soon = threading.Event()
        self._wake = -1
        self._seen: dict[str, PodReport] = {}

    def fds(self) -> tuple[int, ...]:
        if self._wake < 0:
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            threading.Thread(target=self._go_on, name="ray-watch", daemon=True).start()
        return (self._wake,)

    def drain(self) -> None:
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)

    def look_soon(self) -> None:
        self._soon.set()

    def _go_on(self) -> None:
        while True:
            soon = self._soon.wait(EVERY_SECONDS)
            self._soon.clear()
            if soon:
                threading.Event().wait(SOON_SECONDS)
            try:
                self._once()
            except Exception:
                log.exception("could not read the state of the pods of Ray pools")

    def _once(self) -> None:
        found = dict(self._look())
        if found != self._seen:
            self._seen = found
            os.eventfd_write(self._wake, 1)
        for pod_id, report in found.items():
            if report.state is PodState.EXITED:
                self._fetch(pod_id)

    def _fetch(self, pod_id: str) -> None:
        """A pool that shrinks takes its nodes' disks along."""
        try:
            self._bring_home(pod_id)
        except RuntimeFailure as failure:
            log.info("could not fetch the log of pod %s yet: %s", pod_id, failure)
