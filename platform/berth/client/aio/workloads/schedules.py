"""Manage schedules, which submit a workload document at times defined by a cron expression."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth.client.aio.resource import AsyncResource
from berth.client.models.schedules import Schedule, ScheduleDetail, ScheduleRun


class AsyncSchedules(AsyncResource):
    def list(self, project: str | None = None) -> AsyncIterator[Schedule]:
        return self._iterate(Schedule, "schedules", {"project": project})

    async def get(self, project: str, name: str) -> ScheduleDetail:
        return await self._get(ScheduleDetail, schedule_path(project, name))

    async def create(
        self,
        project: str,
        name: str,
        cron: str,
        document: Mapping[str, Any] | str | None = None,
        *,
        template: str | None = None,
        time_zone: str = "UTC",
        overlap: str = "skip",
    ) -> ScheduleDetail:
        """Create a schedule from a document (mapping or YAML) or a template.

        Raises Conflict if the name is taken.
        """
        body = {"cron": cron, "time_zone": time_zone, "overlap": overlap, **source_body(document, template)}
        return await self._put(ScheduleDetail, schedule_path(project, name), body, "")

    async def edit(
        self,
        project: str,
        name: str,
        *,
        cron: str | None = None,
        document: Mapping[str, Any] | str | None = None,
        template: str | None = None,
        time_zone: str | None = None,
        overlap: str | None = None,
    ) -> ScheduleDetail:
        """Change values of a schedule and become its owner.

        Raises Conflict if the schedule changes at the same time.
        """
        path = schedule_path(project, name)
        present, tag = await self._read(path)
        changes = {"cron": cron, "time_zone": time_zone, "overlap": overlap}
        body = {key: present[key] if value is None else value for key, value in changes.items()}
        if document is None and template is None:
            key = "template" if present["template"] else "text"
            source = {key: present[key]}
        else:
            source = source_body(document, template)
        return await self._put(ScheduleDetail, path, {**body, **source}, tag)

    async def pause(self, project: str, name: str) -> ScheduleDetail:
        return await self._post(ScheduleDetail, f"{schedule_path(project, name)}/pause")

    async def resume(self, project: str, name: str) -> ScheduleDetail:
        return await self._post(ScheduleDetail, f"{schedule_path(project, name)}/resume")

    async def run(self, project: str, name: str) -> ScheduleRun:
        """Submit a run now, with your own permissions.

        Raises Conflict while the previous run has not ended.
        """
        return await self._post(ScheduleRun, f"{schedule_path(project, name)}/run")

    def runs(self, project: str, name: str, *, limit: int | None = None) -> AsyncIterator[ScheduleRun]:
        """Iterate over a schedule's runs, newest first."""
        return self._iterate(ScheduleRun, f"{schedule_path(project, name)}/runs", {}, limit)

    async def delete(self, project: str, name: str) -> None:
        await self._delete_if_unchanged(schedule_path(project, name))


def source_body(document: Mapping[str, Any] | str | None, template: str | None) -> dict[str, Any]:
    sources = {
        "document": dict(document) if isinstance(document, Mapping) else None,
        "text": document if isinstance(document, str) else None,
        "template": template,
    }
    return {key: value for key, value in sources.items() if value is not None}


def schedule_path(project: str, name: str) -> str:
    return f"projects/{project}/schedules/{name}"
