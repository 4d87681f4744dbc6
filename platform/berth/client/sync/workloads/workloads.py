# Generated from berth/client/aio/workloads/workloads.py by `python -m berth.client.generate`; do not edit.
"""Submit, find, follow and control workloads."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from berth.client.channels import CommandResult, Terminal, command_request
from berth.client.copies import CopyResult, Progress
from berth.client.errors import Ambiguous, Invalid, NotFound
from berth.client.logs import LogChunk
from berth.client.models.arrays import Array
from berth.client.models.metrics import ComparedMetric, Metric, MetricComparison
from berth.client.models.scheduling import Eviction, Explanation, SmallestChange
from berth.client.models.workloads import (
    Batch,
    Cost,  # noqa: F401  (puts the model into this module)
    Dependencies,
    DryRun,
    Edit,
    Event,
    LogMatches,
    Pod,
    PortLink,
    Submission,
    Workload,
    WorkloadDetail,
)
from berth.client.sync.resource import Resource

if TYPE_CHECKING:
    from berth.client.sync.workloads.channels import Channel

MATCHES_PER_PAGE = 500
POLL_SECONDS = 1.0
# Without the slash, `workloads:` would be parsed as a URL scheme.
BATCH_PATH, CHANGE_PATH = "/workloads:batch", "/workloads:smallest-change"
Document = Mapping[str, Any]
W = TypeVar("W", Workload, Array)


class Workloads(Resource):
    def submit(
        self, document: Document, *, code: str | Path | None = None, key: str | None = None
    ) -> Submission:
        """Submit a workload exactly once, even if the connection is lost.

        Calls with the same `key` count as one submission. `code` is a directory to upload with the workload:
        see `client.code.upload`.
        """
        if code is not None:
            # Imported on demand, because only code uploads need this module.
            from berth.client.sync.workloads.code import Code

            project = str(document.get("project") or "")
            section = Code(self._transport).upload(code, project=project)
            document = {**document, "code": section}
        return self._post(Submission, "workloads", document, key=key)

    def submit_many(
        self, documents: Iterable[Document], *, atomic: bool = False, key: str | None = None
    ) -> Batch:
        """Submit up to 1,000 workloads, exactly once even if the connection is lost.

        For each document, the result has the workload or the reason for its rejection. With `atomic`, one
        rejected document prevents all submissions, and Rejected is raised.
        """
        body = {"items": list(documents), "atomic": atomic}
        return self._post(Batch, BATCH_PATH, body, key=key)

    def dry_run(self, document: Document) -> DryRun:
        """Predict what would happen if the workload were submitted now, without storing it."""
        return self._post(DryRun, "workloads", document, {"dry_run": True})

    def dry_run_change(self, document: Document) -> SmallestChange:
        """Return the smallest change that would let the workload start now, without submitting it.

        Raises Invalid if the document is invalid.
        """
        return self._post(SmallestChange, CHANGE_PATH, document)

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Workload]:
        """Iterate over workloads.

        Filters: project, department, pool, phase, kind, reason, label, submitted_by, array, in_array,
        superseded, search, sort.
        """
        return self._iterate(Workload, "workloads", filters, limit)

    def get(self, workload_id: str) -> WorkloadDetail:
        return self._get(WorkloadDetail, f"workloads/{workload_id}")

    def find(self, reference: str) -> WorkloadDetail:
        """Return the workload with the given ID, NAME or PROJECT/NAME. Raises NotFound or Ambiguous."""
        if is_id(reference):
            return self.get(reference)
        project, _, name = reference.rpartition("/")
        listed = self.list(search=name, project=project or None, sort="-submitted_at")
        with raise_not_found_for_unknown_project():
            matching = list(listed) if name else []
        return self.get(require_unique_match(reference, select_candidates(name, matching)).id)

    def edit(
        self, workload_id: str, changes: Document, *, version: int | None = None, dry_run: bool = False
    ) -> Edit:
        """Change keys in the document of a pending or suspended workload.

        None removes a key. Mappings are merged, and lists are replaced. With `dry_run`, nothing is stored.
        Raises Conflict if the workload cannot be edited or has changed since `version`.
        """
        tag = "*" if version is None else f'"{version}"'
        path, params = f"workloads/{workload_id}", {"dry_run": dry_run}
        return self._send(Edit, "PATCH", path, params=params, body=changes, headers={"If-Match": tag})

    def cancel(self, workload_id: str) -> WorkloadDetail:
        return self._act(workload_id, "cancel")

    def suspend(self, workload_id: str) -> WorkloadDetail:
        return self._act(workload_id, "suspend")

    def resume(self, workload_id: str) -> WorkloadDetail:
        return self._act(workload_id, "resume")

    def resubmit(self, workload_id: str, *, key: str | None = None) -> Submission:
        """Submit an ended workload again under the next free name, such as `train-2`.

        Calls with the same `key` count as one submission. Raises Conflict if the workload has not ended, and
        Invalid if its document is no longer accepted.
        """
        return self._post(Submission, f"workloads/{workload_id}/resubmit", key=key)

    def delete(self, workload_id: str) -> None:
        self._delete(f"workloads/{workload_id}")

    def dependencies(self, workload_id: str) -> Dependencies:
        """Return the workloads and arrays that this workload depends on, and those that depend on it."""
        return self._get(Dependencies, f"workloads/{workload_id}/dependencies")

    def explain(self, workload_id: str) -> Explanation:
        return self._get(Explanation, f"workloads/{workload_id}/explain")

    def smallest_change(self, workload_id: str) -> SmallestChange:
        """Return the smallest change that would let a pending workload start now.

        This can take seconds for a large cluster.
        """
        path = f"workloads/{workload_id}/smallest-change"
        return self._get(SmallestChange, path)

    def pods(self, workload_id: str) -> Sequence[Pod]:
        return list(self._iterate(Pod, f"workloads/{workload_id}/pods"))

    def create_port_link(self, workload_id: str, port: str) -> PortLink:
        """Return a one-time link that opens a port of a running workload in a browser."""
        return self._post(PortLink, f"workloads/{workload_id}/ports/{port}/link")

    def metrics(
        self, workload_id: str, *, name: str | None = None, points: int | None = None
    ) -> Sequence[Metric]:
        """Return the metrics that the workload has reported, each with at most `points` points."""
        params = {"name": name, "points": points}
        return list(self._iterate(Metric, f"workloads/{workload_id}/metrics", params))

    def compare_metric(
        self, name: str, workload_ids: Iterable[str], *, points: int | None = None
    ) -> Sequence[ComparedMetric]:
        """Return one metric of up to 20 workloads. Workloads that never reported the metric are omitted."""
        params = {"name": name, "workload": [*workload_ids], "points": points}
        return (self._get(MetricComparison, "metrics", params)).items

    def events(self, workload_id: str) -> Sequence[Event]:
        return list(self._iterate(Event, f"workloads/{workload_id}/events"))

    def evictions(self, workload_id: str) -> Sequence[Eviction]:
        return list(self._iterate(Eviction, f"workloads/{workload_id}/evictions"))

    def changes(self, workload_id: str, poll: float = POLL_SECONDS) -> Iterator[WorkloadDetail]:
        """Yield the workload now and whenever its phase, reason, message or run changes, until it has
        ended.
        """
        seen = None
        while True:
            workload = self.get(workload_id)
            state = (workload.phase, workload.reason, workload.message, workload.run)
            if state != seen:
                yield workload
            if workload.has_ended:
                return
            seen = state
            self._transport.sleep(poll)

    def log(
        self,
        workload_id: str,
        *,
        pod: str | None = None,
        run: int | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        timestamps: bool = False,
    ) -> LogChunk:
        """Return the last `tail` lines of a pod's log, or `limit` bytes from `offset`.

        With `timestamps`, each line begins with the UTC time at which it was written (within 2 s), or with
        `-` if the time is unknown.
        """
        params = {"pod": pod, "run": run, "tail": tail, "offset": offset, "limit": limit}
        params |= {"timestamps": True} if timestamps else {}
        response = self._transport.execute("GET", f"workloads/{workload_id}/logs", params=params)
        return parse_log_chunk(response, offset or 0)

    def search_log(
        self,
        workload_id: str,
        text: str,
        *,
        pod: str | None = None,
        run: int | None = None,
        around: int = 0,
        ignore_case: bool = False,
        limit: int | None = None,
    ) -> Iterator[LogMatches]:
        """Yield pages of log lines that contain `text`, with `around` lines of context."""
        params = {"text": text, "pod": pod, "run": run, "around": around, "ignore_case": ignore_case}
        cursor, remaining = None, limit
        while remaining is None or remaining > 0:
            query = {
                **params,
                "limit": min(remaining or MATCHES_PER_PAGE, MATCHES_PER_PAGE),
                "cursor": cursor,
            }
            response = self._transport.get(f"workloads/{workload_id}/logs/search", query)
            matches = LogMatches.model_validate(response)
            yield matches
            remaining = None if remaining is None else remaining - len(matches.items)
            cursor = matches.next
            if cursor is None:
                return

    def log_stream(
        self, workload_id: str, *, pod: str | None = None, run: int | None = None, offset: int = 0,
        timestamps: bool = False,
    ) -> Iterator[bytes]:  # fmt: skip
        """Stream a pod's log from byte `offset` until the pod ends.

        With `timestamps`, lines begin with their time. To stop earlier, close the iterator
        (`contextlib.closing`).
        """
        params = {"pod": pod, "run": run, "offset": offset, "follow": True}
        params |= {"timestamps": True} if timestamps else {}
        with self._transport.stream(f"workloads/{workload_id}/logs", params) as response:
            yield from response.iter_bytes()

    def exec(
        self, workload_id: str, command: Sequence[str], *, pod: str | None = None, data: bytes = b""
    ) -> CommandResult:
        """Run a command in a pod with `data` as input, and return the result.

        `pod` is ROLE-INDEX, by default the first pod. The entire output is held in memory.
        """
        from berth.client.sync.workloads.channels import run_command  # slow import that is rarely needed

        return run_command(self._transport.settings, workload_id, command, pod, data)

    def open_channel(
        self, workload_id: str, command: Sequence[str], *, pod: str | None = None,
        terminal: Terminal | None = None,
    ) -> "Channel":  # fmt: skip
        """Return a connection to a command in a pod, for interactive input and output."""
        from berth.client.sync.workloads.channels import Channel  # slow import that is rarely needed

        request = command_request(command, terminal)
        return Channel(self._transport.settings, workload_id, request, pod=pod)

    def copy_to(
        self, workload_id: str, source: str | Path, target: str = "", *, pod: str | None = None,
        progress: Progress | None = None,
    ) -> CopyResult:  # fmt: skip
        """Copy a file or directory to `target` in a pod.

        `pod` is ROLE-INDEX, by default the first pod. The target is relative to the pod's working directory.
        If it is a directory, the source is copied into it. `progress` is called with the number of bytes
        copied and the total. Raises CopyFailed.
        """
        from berth.client.sync.workloads.copies import copy_to  # slow import that is rarely needed

        return copy_to(self._transport.settings, workload_id, str(source), target, pod, progress)

    def copy_from(
        self, workload_id: str, source: str, target: str | Path = "", *, pod: str | None = None,
        progress: Progress | None = None,
    ) -> CopyResult:  # fmt: skip
        """Copy a file or directory of a pod to a local `target`.

        `pod` is ROLE-INDEX, by default the first pod. The source is relative to the pod's working directory.
        If the target is a directory, the source is copied into it. `progress` is called with the number of
        bytes copied and, for a file, the total. Raises CopyFailed.
        """
        from berth.client.sync.workloads.copies import copy_from  # slow import that is rarely needed

        return copy_from(self._transport.settings, workload_id, source, str(target), pod, progress)

    def code(self, workload_id: str) -> Iterator[bytes]:
        """Stream a workload's code as a tar archive."""
        with self._transport.stream(f"workloads/{workload_id}/code") as response:
            yield from response.iter_bytes()

    def _act(self, workload_id: str, action: str) -> WorkloadDetail:
        return self._post(WorkloadDetail, f"workloads/{workload_id}/{action}")


def select_candidates(name: str, workloads: Iterable[W]) -> Sequence[W]:
    """Return the live workloads or arrays with this name. If none are live, return the ended ones."""
    named = [workload for workload in workloads if workload.name == name]
    return [workload for workload in named if not workload.has_ended] or named


@contextmanager
def raise_not_found_for_unknown_project() -> Iterator[None]:
    """Within the block, convert the server's error for an unknown or hidden project to NotFound."""
    try:
        yield
    except Invalid as error:
        if any(problem.path != "project" for problem in error.problems):
            raise
        errors = [problem.to_dict() for problem in error.problems]
        raise NotFound(404, {"code": "not-found", "detail": error.detail, "errors": errors}) from None


def require_unique_match(reference: str, candidates: Sequence[W], kind: str = "Workload") -> W:
    if not candidates:
        detail = f"{kind} {reference} does not exist or is not visible to you."
        raise NotFound(404, {"detail": f"{detail} List workloads and arrays with `berth list --all`."})
    handles = sorted({workload.handle for workload in candidates})
    if len(handles) > 1:
        raise Ambiguous(reference, handles)
    return candidates[0]


def parse_log_chunk(response: httpx.Response, start: int) -> LogChunk:
    following = int(response.headers.get("X-Next-Offset", start + len(response.content)))
    return LogChunk(response.content, following, response.headers.get("X-Complete", "").lower() == "true")


def is_id(reference: str) -> bool:
    try:
        return str(uuid.UUID(reference)) == reference.lower()
    except ValueError:
        return False
