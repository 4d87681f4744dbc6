"""Thread that fetches workload code from Git servers."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from django.db import DatabaseError, connection

from berth.core.clock import Clock
from berth.core.errors import BerthError
from berth.core.spec.sections.git import GitSpec
from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import HeldLease, LeadershipLost, fenced_transaction
from berth.db.queries import prepared
from pools.models import NodePool
from pools.runtimes.base import Runtime
from projects.code.base import StoreFailure
from projects.code.git import FetchedCommit, FetchRequest, GitFailure, GitPolicy, GitRejection, fetch_commit
from projects.code.git.program import GitInterrupted
from projects.code.git.scratch import key_directory, sweep_scratch_directories
from projects.models import CodeFetch
from projects.services.code import write_chunks
from projects.services.code_fetches import ReadKey, next_fetch, read_key
from projects.services.code_results import error_text, fail_fetch, finish_fetch, postpone_fetch
from scheduler.reports.leased_thread import LeasedThread

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between checks for new requests
WAITING = "SELECT EXISTS (SELECT FROM projects_codefetch WHERE state = %(state)s)"
PER_PROJECT = 2  # maximum number of concurrent fetches per project


@dataclass(frozen=True, slots=True)
class _RunningFetch:
    fetch: CodeFetch
    key: ReadKey
    result: "Future[FetchedCommit]"


class CodeFetcher(LeasedThread):
    """Thread that fetches code with a few workers and stores the results.

    Interrupted fetches are repeated.
    """

    lease_name: ClassVar[str] = "code"
    subject: ClassVar[str] = "the fetching of code"

    def __init__(
        self, clock: Clock, policy: Callable[[], GitPolicy], base: Path, concurrency: int,
        leads: Callable[[], bool],
    ) -> None:  # fmt: skip
        super().__init__(clock, _reject_runtime_lookup, INTERVAL if concurrency > 0 else 0, leads)
        self._policy, self._base, self._concurrency = policy, base, concurrency
        self._threads = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="code")
        self._running: dict[UUID, _RunningFetch] = {}
        self._has_swept = False

    def has_work(self) -> bool:
        if self._running or not self._has_swept:
            return True
        return bool(prepared.fetch_all(WAITING, {"state": CodeFetch.State.WAITING})[0][0])

    def run_job(self, held: HeldLease) -> None:
        assert_no_transaction()
        if not self._has_swept:
            sweep_scratch_directories(self._base)
            sweep_scratch_directories(key_directory(self._base))
            self._has_swept = True
        for pk, running in list(self._running.items()):
            if running.result.done():
                del self._running[pk]
                self._record_result(running, held)
        now = self._clock.now()
        while len(self._running) < self._concurrency:
            fetch = next_fetch(now, self._running.keys(), self._projects_at_fetch_limit())
            if fetch is None:
                break
            self._start_fetch(fetch, held, now)

    def end(self, timeout: float = 5.0) -> None:
        """Stop the thread and interrupt fetches in progress."""
        self._stop_requested.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        super().end(timeout)

    def _projects_at_fetch_limit(self) -> list[int]:
        counts = Counter(each.fetch.project_id for each in self._running.values())
        return [project for project, count in counts.items() if count >= PER_PROJECT]

    def _start_fetch(self, fetch: CodeFetch, held: HeldLease, now: datetime) -> None:
        try:
            key, spec = read_key(fetch), GitSpec.model_validate(fetch.section)
        except (BerthError, ValueError) as error:
            with fenced_transaction(held):
                fail_fetch(fetch, error_text(error), now)
            return
        request = FetchRequest(spec, self._policy(), self._base, key.value, self._stop_requested.is_set)
        self._running[fetch.pk] = _RunningFetch(fetch, key, self.submit(fetch, request))

    def submit(self, fetch: CodeFetch, request: FetchRequest) -> "Future[FetchedCommit]":
        """Start a fetch in a worker thread that has its own database connection."""

        def run() -> FetchedCommit:
            try:
                return self.fetch(fetch, request)
            finally:
                connection.close()

        return self._threads.submit(run)

    def fetch(self, fetch: CodeFetch, request: FetchRequest) -> FetchedCommit:
        """Fetch a commit from its Git server and store its chunks."""

        def store(chunks: Mapping[str, bytes]) -> None:
            write_chunks(fetch.project, chunks, self._clock.now())

        commit = fetch_commit(request, store)
        crash_point("code.chunks_stored")
        return commit

    def _record_result(self, running: _RunningFetch, held: HeldLease) -> None:
        fetch, now, error = running.fetch, self._clock.now(), running.result.exception()
        if isinstance(error, GitInterrupted):
            return
        try:
            if error is not None:
                raise error
            with fenced_transaction(held):
                finish_fetch(fetch, running.key, running.result.result(), now)
        except (GitFailure, StoreFailure, OSError) as failure:
            log.warning("the code of %s cannot be fetched now: %s", fetch, failure)
            with fenced_transaction(held):
                postpone_fetch(fetch, error_text(failure), now)
        except (GitRejection, BerthError) as rejection:
            with fenced_transaction(held):
                fail_fetch(fetch, error_text(rejection), now)
        except (LeadershipLost, DatabaseError):
            raise
        except Exception as unexpected:
            log.exception("the code of %s could not be fetched", fetch)
            with fenced_transaction(held):
                postpone_fetch(fetch, f"An unexpected error occurred: {unexpected!r}.", now)


def _reject_runtime_lookup(pool: NodePool) -> Runtime:
    raise LookupError("the thread that fetches code cannot look up runtimes")
