"""Submit, find, follow and control arrays."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal

from berth.client.aio.resource import AsyncResource
from berth.client.aio.workloads.workloads import (
    POLL_SECONDS,
    Document,
    is_id,
    raise_not_found_for_unknown_project,
    require_unique_match,
    select_candidates,
)
from berth.client.models.arrays import (
    Array,
    ArrayChange,
    ArrayDetail,
    ArrayDryRun,
    ArraySubmission,
)
from berth.client.models.metrics import MetricNames, TaskMetric, TaskStop, TaskStops
from berth.client.models.workloads import Dependencies, Workload

Index = int | str  # an index such as 7, or a range such as "0-99:10"


class AsyncArrays(AsyncResource):
    async def submit(self, document: Document, *, key: str | None = None) -> ArraySubmission:
        """Submit an array exactly once, even if the connection is lost.

        Calls with the same `key` count as one submission.
        """
        return await self._post(ArraySubmission, "arrays", document, key=key)

    async def dry_run(self, document: Document) -> ArrayDryRun:
        """Validate the document and predict the outcome of its tasks, without storing the array."""
        return await self._post(ArrayDryRun, "arrays", document, {"dry_run": True})

    def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Array]:
        """Iterate over arrays. `costs=True` adds the cost of their tasks.

        Filters: project, state, submitted_by, search, sort.
        """
        return self._iterate(Array, "arrays", filters, limit)

    async def get(self, array_id: str) -> ArrayDetail:
        return await self._get(ArrayDetail, f"arrays/{array_id}")

    async def find(self, reference: str) -> ArrayDetail:
        """Return the array with the given ID, NAME or PROJECT/NAME. Raises NotFound or Ambiguous."""
        if is_id(reference):
            return await self.get(reference)
        project, _, name = reference.rpartition("/")
        listed = self.list(search=name, project=project or None, sort="-submitted_at")
        with raise_not_found_for_unknown_project():
            matching = [array async for array in listed] if name else []
        return await self.get(require_unique_match(reference, select_candidates(name, matching), "Array").id)

    async def dependencies(self, array_id: str) -> Dependencies:
        """Return the workloads and arrays that this array depends on, and those that depend on it."""
        return await self._get(Dependencies, f"arrays/{array_id}/dependencies")

    def tasks(
        self, array_id: str, *, all_attempts: bool = False, limit: int | None = None, **filters: object
    ) -> AsyncIterator[Workload]:
        """Iterate over the array's tasks, which are workloads. `all_attempts` includes earlier attempts.

        Accepts the filters of `workloads.list`, for example phase="failed".
        """
        attempts = {} if all_attempts else {"superseded": False}
        params = {"array": array_id, "sort": "submitted_at", **attempts, **filters}
        return self._iterate(Workload, "workloads", params, limit)

    def metrics(
        self, array_id: str, name: str, *, goal: Literal["min", "max"] = "min", points: int = 0,
        limit: int | None = None,
    ) -> AsyncIterator[TaskMetric]:  # fmt: skip
        """Iterate over the tasks that reported a metric, best value first.

        With `goal="max"`, the highest value is the best.
        """
        params = {"name": name, "goal": goal, "points": points}
        return self._iterate(TaskMetric, f"arrays/{array_id}/metrics", params, limit)

    async def metric_names(self, array_id: str) -> Sequence[str]:
        return (await self._get(MetricNames, f"arrays/{array_id}/metrics/names")).names

    async def unread_tasks(self, array_id: str) -> int:
        """Return the number of ended tasks whose metrics have not all been read.

        While there are such tasks, the best task in `metrics` may still change.
        """
        return (await self._get(MetricNames, f"arrays/{array_id}/metrics/names")).unread_tasks

    async def stops(self, array_id: str) -> Sequence[TaskStop]:
        """Return the tasks that the array's stop rule would stop now."""
        return (await self._get(TaskStops, f"arrays/{array_id}/stops")).stops

    async def cancel(
        self, array_id: str, indexes: Iterable[Index] | None = None, *, dry_run: bool = False
    ) -> ArrayChange:
        """Cancel all live tasks, or only those at the given indexes or ranges. A dry run changes nothing."""
        return await self._change(array_id, "cancel", indexes, dry_run)

    async def cancel_worst(
        self, array_id: str, count: int, metric: str, *, goal: Literal["min", "max"] = "min",
        dry_run: bool = False,
    ) -> ArrayChange:  # fmt: skip
        """Cancel the live tasks with the worst values of a metric. A dry run changes nothing."""
        body = {"worst": {"metric": metric, "goal": goal, "count": count}}
        return await self._post(ArrayChange, f"arrays/{array_id}/cancel", body, {"dry_run": dry_run})

    async def suspend(
        self, array_id: str, indexes: Iterable[Index] | None = None, *, dry_run: bool = False
    ) -> ArrayChange:
        """Suspend all live tasks, or only those at the given indexes or ranges. A dry run changes nothing."""
        return await self._change(array_id, "suspend", indexes, dry_run)

    async def resume(
        self, array_id: str, indexes: Iterable[Index] | None = None, *, dry_run: bool = False
    ) -> ArrayChange:
        """Resume all suspended tasks, or only those at the given indexes or ranges.

        A dry run changes nothing.
        """
        return await self._change(array_id, "resume", indexes, dry_run)

    async def set_max_running(self, array_id: str, max_running: int | None) -> ArrayDetail:
        """Set the maximum number of tasks that may use resources at the same time.

        None removes the maximum.
        """
        body = {"max_running": max_running}
        return await self._send(ArrayDetail, "PATCH", f"arrays/{array_id}", body=body)

    async def retry(
        self, array_id: str, indexes: Iterable[Index] | None = None, *, dry_run: bool = False
    ) -> ArrayChange:
        """Resubmit the failed tasks, or those at the given indexes or ranges. A dry run changes nothing."""
        return await self._change(array_id, "retry", indexes, dry_run)

    async def delete(self, array_id: str) -> None:
        """Delete an array that has ended, with its tasks and their logs."""
        await self._delete(f"arrays/{array_id}")

    async def changes(self, array_id: str, poll: float = POLL_SECONDS) -> AsyncIterator[ArrayDetail]:
        """Yield the array now and whenever its task counts change, until all tasks have ended."""
        seen = None
        while True:
            array = await self.get(array_id)
            if array.counts != seen or array.has_ended:
                yield array
            if array.has_ended:
                return
            seen = array.counts
            await self._transport.sleep(poll)

    async def wait(self, array_id: str, poll: float = POLL_SECONDS) -> ArrayDetail:
        """Wait until all tasks have ended, and return the array."""
        async for array in self.changes(array_id, poll):
            last = array
        return last

    async def _change(
        self, array_id: str, action: str, indexes: Iterable[Index] | None, dry_run: bool
    ) -> ArrayChange:
        parts: Sequence[Index] | None = None if indexes is None else [*indexes]
        body = {} if parts is None else {"indexes": parts}
        params = {"dry_run": True} if dry_run else None
        return await self._post(ArrayChange, f"arrays/{array_id}/{action}", body, params)
