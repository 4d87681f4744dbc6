"""Read the log of a pod in chunks of bounded size, from any runtime."""

from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import QuerySet

from berth.core.errors import NotFound, Unavailable
from berth.core.problems import shown
from berth.server.wiring import NotWired, wired
from pools.runtimes.base import LogChunk, PodState, Runtime, RuntimeFailure
from projects import selectors
from projects.acting import Acting
from projects.models import Pod, Workload
from projects.models.workloads import LIVE_POD_STATES

PIECE_MAX = 2**20
MOST_NAMED = 20  # pods
TAIL_MAX = 2**20  # bytes that are searched for the last lines


@dataclass(frozen=True, slots=True)
class PodLog:
    """The log of one pod; incomplete while the pod is live, even if its runtime does not know it yet."""

    pod: Pod
    runtime: Runtime

    def piece(self, offset: int, limit: int = PIECE_MAX) -> LogChunk:
        try:
            complete = self._has_ended()  # before reading, so that data written in between is read next time
            chunk = self.runtime.read_log(str(self.pod.pk), offset, min(limit, PIECE_MAX))
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(f"The log cannot be read right now: {error}") from None
        return replace(chunk, complete=complete and chunk.next_offset >= chunk.size)

    def long_piece(self, offset: int, limit: int) -> LogChunk:
        """Return a chunk of any size for a reader of the whole log; `complete` has no meaning."""
        try:
            return self.runtime.read_log(str(self.pod.pk), offset, limit)
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(f"The log cannot be read right now: {error}") from None

    @property
    def name(self) -> str:
        return f"{self.pod.role}-{self.pod.index}"

    def tail(self, lines: int) -> LogChunk:
        """Return the last lines, at most TAIL_MAX bytes."""
        size = self.piece(0, 0).size
        chunk = self.piece(max(0, size - TAIL_MAX), TAIL_MAX)
        cut = _start_of_last(chunk.data, lines)
        return replace(chunk, data=chunk.data[cut:], offset=chunk.offset + cut)

    def _has_ended(self) -> bool:
        if self.pod.state not in LIVE_POD_STATES:
            return True
        report = self.runtime.look([str(self.pod.pk)])[str(self.pod.pk)]
        if report.state != PodState.UNKNOWN:
            return report.state == PodState.EXITED
        # Not started yet, or no longer known to the runtime: read the row.
        state = Pod.objects.filter(pk=self.pod.pk).values_list("state", flat=True).first()
        return state not in LIVE_POD_STATES


def _no_pod(pods: QuerySet[Pod], name: str | None, run: int | None) -> str:
    """Return an error message that names the requested pod and the existing ones."""
    latest = pods.order_by("-run", "rank").values_list("run", "role", "index")[:MOST_NAMED]
    if not latest or (name is None and run is None):
        return "It has not started: there is no log yet."
    requested = " of ".join(part for part in (name and f"pod {name}", run and f"run {run}") if part)
    named = ", ".join(f"{role}-{index}" for last, role, index in latest if last == latest[0][0])
    return f"There is no {requested}. Pods of the latest run, {latest[0][0]}: {named}."


def log_of_pod(acting: Acting, workload_id: UUID, pod_id: str) -> PodLog:
    """Return the log of the pod with this id. Raises NotFound or Unavailable."""
    try:
        pod = selectors.pods(acting).get(workload=workload_id, pk=UUID(pod_id))
        return PodLog(pod, wired().runtime_of(pod.node.pool))
    except (Pod.DoesNotExist, ValueError):
        raise NotFound("There is no such pod.") from None
    except NotWired as error:
        raise Unavailable(str(error)) from None


def log_of(acting: Acting, workload: Workload, *, name: str | None, run: int | None) -> PodLog:
    """Return the log of the latest attempt of a pod, by default of rank 0 in the latest run.

    `name` is ROLE-INDEX. Raises NotFound or Unavailable.
    """
    pods = selectors.pods(acting).filter(workload=workload)
    if run is not None:
        pods = pods.filter(run=run)
    if name is not None:
        role, _, index = name.rpartition("-")
        if not (role and index.isascii() and index.isdigit() and len(index) <= 9):
            raise NotFound(f"There is no pod {shown(name)}: pods are named ROLE-INDEX.")
        pods = pods.filter(role=role, index=int(index))
    pod = pods.order_by("-run", "rank", "-created_at", "pk").first()
    if pod is None:
        raise NotFound(_no_pod(selectors.pods(acting).filter(workload=workload), name, run))
    try:
        return PodLog(pod, wired().runtime_of(pod.node.pool))
    except NotWired as error:
        raise Unavailable(str(error)) from None


def _start_of_last(data: bytes, lines: int) -> int:
    position = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
