"""Read a pod's log in bounded chunks, from any runtime, with secrets masked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.db.models import QuerySet

from berth.core.errors import NotFound, Unavailable
from berth.core.masking import MASK, Masker
from berth.core.problems import format_value
from berth.server.wiring import UnavailableImplementation, load_wiring
from pools.runtimes.base import LogChunk, LogTime, PodState, Runtime, RuntimeFailure
from projects import selectors
from projects.actor import Actor
from projects.models import Pod, Workload
from projects.models.workloads import LIVE_POD_STATES
from projects.services.secrets import workload_maskers
from scheduler.api.logs.masked_reader import MaskedReader

MAX_CHUNK_BYTES = 2**20
MAX_LISTED_PODS = 20  # maximum number of pods that an error message lists
MAX_TAIL_BYTES = 2**20  # maximum number of bytes read to find the last lines


@dataclass(slots=True)
class PodLog:
    """Log of a pod, with the workload's secrets masked.

    The log is complete once the pod has ended. While the pod runs, trailing bytes that may begin a secret are
    withheld or masked.
    """

    pod: Pod
    runtime: Runtime
    _reader: MaskedReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = MaskedReader(self._read_raw, self._load_masker)

    def read_chunk(self, offset: int, limit: int = MAX_CHUNK_BYTES) -> LogChunk:
        """Return a chunk, without trailing bytes that may be the beginning of a secret."""
        try:
            # First check whether the pod has ended, because it may write more output and end during the read.
            complete = self._has_ended()
            chunk, partial_match_length = self._reader.read(offset, min(limit, MAX_CHUNK_BYTES))
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(f"The log cannot be read right now: {error}. Try again later.") from None
        if partial_match_length and not complete:
            end = chunk.next_offset - partial_match_length
            chunk = replace(chunk, data=chunk.data[: end - chunk.offset], next_offset=end)
        return replace(chunk, complete=complete and chunk.next_offset >= chunk.size)

    def read_large_chunk(self, offset: int, limit: int) -> LogChunk:
        """Return a chunk of any size. Callers must ignore its `complete` field, which is unreliable."""
        try:
            chunk, partial_match_length = self._reader.read(offset, limit)
            if partial_match_length and not self._has_ended():
                chunk = replace(chunk, data=chunk.data[:-partial_match_length] + MASK * partial_match_length)
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(f"The log cannot be read right now: {error}. Try again later.") from None
        return chunk

    def read_times(self, start: int, end: int) -> Sequence[LogTime]:
        """Return the known times of the lines between two offsets.

        See `Runtime.read_log_times`. Raises Unavailable.
        """
        try:
            return self.runtime.read_log_times(str(self.pod.pk), start, end)
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(
                f"The log's timestamps cannot be read right now: {error}. Try again later."
            ) from None

    def is_line_start(self, offset: int) -> bool:
        return offset == 0 or self.read_large_chunk(offset - 1, 1).data == b"\n"

    def _read_raw(self, offset: int, limit: int) -> LogChunk:
        return self.runtime.read_log(str(self.pod.pk), offset, limit)

    def _load_masker(self) -> Masker:
        return workload_maskers([self.pod.workload_id]).get(self.pod.workload_id, Masker())

    @property
    def name(self) -> str:
        return f"{self.pod.role}-{self.pod.index}"

    def tail(self, lines: int, max_bytes: int = MAX_TAIL_BYTES) -> LogChunk:
        """Return the last lines, up to `max_bytes` bytes."""
        size = self.read_chunk(0, 0).size
        chunk = self.read_chunk(max(0, size - max_bytes), max_bytes)
        cut = _last_lines_offset(chunk.data, lines)
        return replace(chunk, data=chunk.data[cut:], offset=chunk.offset + cut)

    def _has_ended(self) -> bool:
        if self.pod.state not in LIVE_POD_STATES:
            return True
        report = self.runtime.get_reports([str(self.pod.pk)])[str(self.pod.pk)]
        if report.state != PodState.UNKNOWN:
            return report.state == PodState.EXITED
        # The pod has not started, or the runtime no longer lists it. Use the stored state.
        state = Pod.objects.filter(pk=self.pod.pk).values_list("state", flat=True).first()
        return state not in LIVE_POD_STATES


def _missing_pod_message(pods: QuerySet[Pod], name: str | None, run: int | None) -> str:
    latest = pods.order_by("-run", "rank").values_list("run", "role", "index")[:MAX_LISTED_PODS]
    if not latest or (name is None and run is None):
        return "The workload has not started, so there is no log yet. See `berth why WORKLOAD`."
    requested = " of ".join(part for part in (name and f"pod {name}", run and f"run {run}") if part)
    named = ", ".join(f"{role}-{index}" for last, role, index in latest if last == latest[0][0])
    return f"There is no {requested}. Pods of the latest run, {latest[0][0]}: {named}."


def find_pod_log(actor: Actor, workload_id: UUID, pod_id: str) -> PodLog:
    """Return the log of the pod with the given ID.

    Raises NotFound, or Unavailable if the pool's runtime is missing.
    """
    try:
        pod = selectors.pods(actor).get(workload=workload_id, pk=UUID(pod_id))
        return PodLog(pod, load_wiring().runtime_for(pod.node.pool))
    except (Pod.DoesNotExist, ValueError):
        raise NotFound(
            f"The workload has no pod with the ID {format_value(pod_id)}. "
            "List its pods with `berth describe WORKLOAD`."
        ) from None
    except UnavailableImplementation as error:
        raise Unavailable(str(error)) from None


def find_latest_log(actor: Actor, workload: Workload, *, name: str | None, run: int | None) -> PodLog:
    """Return the log of a pod's latest attempt, by default the rank-0 pod of the latest run.

    `name` has the form ROLE-INDEX. Raises NotFound, or Unavailable if the pool's runtime is missing.
    """
    pods = selectors.pods(actor).filter(workload=workload)
    if run is not None:
        pods = pods.filter(run=run)
    if name is not None:
        role, _, index = name.rpartition("-")
        if not (role and index.isascii() and index.isdigit() and len(index) <= 9):
            raise NotFound(
                f"There is no pod named {format_value(name)}. Pods are named ROLE-INDEX, for example "
                "worker-0."
            )
        pods = pods.filter(role=role, index=int(index))
    pod = pods.order_by("-run", "rank", "-created_at", "pk").first()
    if pod is None:
        raise NotFound(_missing_pod_message(selectors.pods(actor).filter(workload=workload), name, run))
    try:
        return PodLog(pod, load_wiring().runtime_for(pod.node.pool))
    except UnavailableImplementation as error:
        raise Unavailable(str(error)) from None


def _last_lines_offset(data: bytes, lines: int) -> int:
    position = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
