"""Slurm provider that keeps no state. Each node is a pilot job, identified by its name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from berth.core.wording.words import format_count
from pools.providers.base import (
    Instance,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview
from pools.providers.slurm import jobs
from pools.providers.slurm.client import SlurmClient
from pools.providers.slurm.jobs import PilotJob, PilotName
from pools.providers.slurm.preview import make_preview
from pools.providers.slurm.settings import SlurmSettings


class SlurmProvider:
    """Provider of pilot jobs in one Slurm partition.

    `installation` distinguishes this installation's jobs from other jobs of the same user. `variables`
    returns what a launch request's jobs need to join the pool.
    """

    has_joining_machines = True

    def __init__(
        self, settings: SlurmSettings, client: SlurmClient, installation: str, *,
        variables: Callable[[LaunchRequest], Mapping[str, str]], now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self.settings, self.client = settings, client
        self.installation = jobs.escape_installation_name(installation)
        self._variables, self._now = variables, now

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        """Return the launch request's jobs, including those that have ended.

        Submit the jobs first if there are none. Jobs that ended more than a few minutes ago are read from the
        accounting database, if the cluster has one.
        """
        listed = self.client.list_jobs()
        existing = self._request_instances(order, listed)
        if existing:
            return ProvisionResult(existing)
        if order.is_repeated and (ended := self._ended_instances(order)):
            return ProvisionResult(ended)
        message = self._submit(order, [job.name for job in listed if job.is_active_job])
        created = self._request_instances(order, self.client.list_jobs())
        if not created:
            raise ProviderError(ProviderErrorKind.TIMEOUT, "Slurm does not list the submitted jobs yet")
        return ProvisionResult(created, message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        return self._instances(self._recent_jobs(pool))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Cancel the jobs that belong to the pool and the installation. Ignore all other job IDs."""
        living = [
            job for job in self._recent_jobs(pool) if job.is_active_job and job.instance_id in instance_ids
        ]
        if living:
            self.client.cancel(living)

    def preview(self, pool: str, shape: Shape) -> Preview:
        """Examine the partition and, if possible, let Slurm validate a job without submitting it."""
        shown = self.client.examine(LaunchRequest(pool, 1, "preview", 0, shape))
        preview = make_preview(self.settings, shape, shown.partitions, shown.source, shown.rejection)
        return replace(preview, findings=(*shown.findings, *preview.findings))

    def _submit(self, order: LaunchRequest, living: Sequence[PilotName]) -> str:
        """Submit the jobs. Return why Slurm rejected some, or "".

        Raises ProviderError if Slurm accepted none or did not respond.
        """
        names = self._pilot_names(order)
        submission = self.client.submit(order, names, self._variables(order), living)
        error = submission.error
        if error is None:
            return ""
        if not submission.accepted or error.kind is ProviderErrorKind.TIMEOUT:
            raise error
        accepted = format_count(submission.accepted, "job")
        return f"Slurm accepted {accepted} of {order.count}: {error.message}"

    def _request_instances(self, order: LaunchRequest, listed: Iterable[PilotJob]) -> tuple[Instance, ...]:
        jobs_of_pool = self._jobs_in_pool(order.pool, listed)
        return self._instances(job for job in jobs_of_pool if job.name.token == order.client_token)

    def _ended_instances(self, order: LaunchRequest) -> tuple[Instance, ...]:
        """Return the launch request's jobs from the accounting database, or none if the cluster has no such
        database.

        Raises ProviderError if the database does not respond, because jobs could otherwise be missed.
        """
        return self._instances(self.client.ended_jobs(self._pilot_names(order)))

    def _recent_jobs(self, pool: str) -> list[PilotJob]:
        """Return the pool's jobs, including those that ended recently."""
        return self._jobs_in_pool(pool, self.client.list_jobs())

    def _jobs_in_pool(self, pool: str, listed: Iterable[PilotJob]) -> list[PilotJob]:
        return [job for job in listed if (job.name.installation, job.name.pool) == (self.installation, pool)]

    def _instances(self, listed: Iterable[PilotJob]) -> tuple[Instance, ...]:
        now = self._now()
        return jobs.sort_instances(jobs.to_instance(job, self.settings.notice_seconds, now) for job in listed)

    def _pilot_names(self, order: LaunchRequest) -> list[PilotName]:
        ordinals = range(order.start_ordinal, order.start_ordinal + order.count)
        return [PilotName(self.installation, order.pool, each, order.client_token) for each in ordinals]
