"""Joblib backend that runs `Parallel(n_jobs=-1)` on a session."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

try:
    from joblib import parallel_config, register_parallel_backend
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase
except ModuleNotFoundError as error:
    message = "Session.parallel() requires joblib. Install it with: pip install 'berth-platform[joblib]'"
    raise ModuleNotFoundError(message, name=error.name) from None

from pools.plugins.builtin.joblib import run_batch

NAME = "berth"


class ParallelSession(Protocol):
    """Session interface used by the joblib backend."""

    @property
    def concurrency(self) -> int: ...

    def ready_nodes(self) -> int: ...

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]: ...


@contextmanager
def use_as_parallel_backend(session: ParallelSession) -> Iterator[None]:
    """Within the block, run joblib on the session by default, including in libraries such as scikit-learn."""
    register_parallel_backend(NAME, BerthBackend)
    with parallel_config(NAME, session=session):
        yield


class BerthBackend(AutoBatchingMixin, ParallelBackendBase):
    """Joblib backend that sends each batch of jobs as one call. Nested jobs stay on their node."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = False
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, session: ParallelSession | None = None, **options: Any) -> None:
        super().__init__(**options)
        if session is None:
            raise ValueError("The berth backend requires an open session. Use `with session.parallel():`.")
        self._session = session

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs must not be 0. Use -1 for as many jobs as the session can run.")
        # With one job, joblib would run all jobs in this process.
        max_jobs = max(2, self._session.ready_nodes() * self._session.concurrency)
        if n_jobs is None:
            return 1
        return max_jobs if n_jobs < 0 else n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[..., Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        future = self._session.submit(run_batch, func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all calls that have not started. The session stays open."""
        for future in list(getattr(self.parallel, "_jobs", ())):
            cancel = getattr(getattr(future, "job", None), "cancel", None)
            if cancel is not None:
                cancel()
