"""Stateless Slurm provider. Each node is a pilot job that is identified by its name."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from berth.core.words import format_count
from pools.providers.base import (
    Instance,
    ProviderError,
    ProviderErrorKind,
    ProvisionOrder,
    ProvisionResult,
    Shape,
)
from pools.providers.commands import CommandResult, Commands
from pools.providers.preview import Preview
from pools.providers.slurm import cluster, jobs, submission
from pools.providers.slurm.errors import clean, failure, has_no_accounting
from pools.providers.slurm.jobs import PilotJob, PilotName
from pools.providers.slurm.preview import make_preview
from pools.providers.slurm.settings import SlurmSettings

QUERY_SECONDS = 30.0
SUBMIT_SECONDS = 60.0
HISTORY_DAYS = 2


class SlurmProvider:
    """Provider of pilot jobs in one partition.

    `installation` separates installations that submit jobs as the same user. `variables` returns
    the values that an order's jobs need to join the pool.
    """

    machines_join = True

    def __init__(
        self, settings: SlurmSettings, commands: Commands, installation: str, *,
        variables: Callable[[ProvisionOrder], Mapping[str, str]], now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self.settings, self.commands = settings, commands
        self.installation = jobs.safe_installation(installation)
        self._variables, self._now = variables, now

    def provision(self, order: ProvisionOrder) -> ProvisionResult:
        """Return the order's jobs, including those that have ended, or submit them.

        Slurm lists ended jobs for some minutes. After that, ended jobs are listed only in the accounting
        database, if there is one.
        """
        listed = self._all_jobs()
        existing = self._order_instances(order, listed)
        if existing:
            return ProvisionResult(existing)
        if order.is_repeated and (ended := self._ended_instances(order)):
            return ProvisionResult(ended)
        message = self._submit(order, [job.name for job in listed if job.is_active_job])
        created = self._order_instances(order, self._all_jobs())
        if not created:
            raise ProviderError(ProviderErrorKind.TIMEOUT, "Slurm does not list the submitted jobs yet")
        return ProvisionResult(created, message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        return self._instances(self._jobs(pool))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Cancel jobs of this pool and installation that still exist. Ignore all other IDs."""
        living = [job for job in self._jobs(pool) if job.is_active_job and job.instance_id in instance_ids]
        if not living:
            return
        ids, names = [job.job_id for job in living], [job.name for job in living]
        result = self._run_script(submission.cancel_script(self.settings, ids, names), SUBMIT_SECONDS)
        if result.exit_code:
            raise failure("scancel", result, self.commands.place)

    def preview(self, pool: str, shape: Shape) -> Preview:
        """Examine the partition, and make Slurm validate a job without submitting the job."""
        version = self._query("sinfo", "--version").strip()
        listed = self._query("sinfo", "--Node", "--noheader", f"--Format={cluster.FORMAT}")
        partitions = list(cluster.parse_partitions(listed))
        order = ProvisionOrder(pool, 1, "preview", 0, shape)
        result = self._run_script(submission.test_script(self.settings, order), QUERY_SECONDS)
        refusal = clean(result.stderr) if result.exit_code else ""
        source = f"{version} on {self.commands.place}"
        return make_preview(self.settings, shape, partitions, source, refusal)

    def _submit(self, order: ProvisionOrder, living: Sequence[PilotName]) -> str:
        """Submit the order's jobs. Return why Slurm accepted only some of them, or an empty string.

        Raises ProviderError if Slurm accepted none.
        """
        ordinals = range(order.start_ordinal, order.start_ordinal + order.count)
        names = [self._name(order, ordinal) for ordinal in ordinals]
        script = submission.submission_script(self.settings, order, names, self._variables(order), living)
        result = self._run_script(script, SUBMIT_SECONDS + order.count)
        if not result.exit_code:
            return ""
        error = failure("sbatch", result, self.commands.place)
        if not result.stdout.strip() or error.kind is ProviderErrorKind.TIMEOUT:
            raise error
        accepted = format_count(len(result.stdout.split()), "job")
        return f"Slurm accepted {accepted} of {order.count}: {clean(result.stderr)}"

    def _order_instances(self, order: ProvisionOrder, listed: Iterable[PilotJob]) -> tuple[Instance, ...]:
        jobs_of_pool = self._jobs_in_pool(order.pool, listed)
        return self._instances(job for job in jobs_of_pool if job.name.token == order.client_token)

    def _ended_instances(self, order: ProvisionOrder) -> tuple[Instance, ...]:
        """Return the order's jobs from the accounting database, or none if there is no database.

        Raises ProviderError if the database does not respond, because it may list jobs of the
        order.
        """
        ordinals = range(order.start_ordinal, order.start_ordinal + order.count)
        names = ",".join(str(self._name(order, ordinal)) for ordinal in ordinals)
        result = self._run(
            "sacct", "--allocations", "--noheader", "--parsable2", f"--starttime=now-{HISTORY_DAYS}days",
            "--format=JobID,State,JobName", f"--name={names}",
        )  # fmt: skip
        if result.exit_code and not has_no_accounting(result):
            raise failure("sacct", result, self.commands.place)
        return self._instances(jobs.parse_accounting(result.stdout))

    def _jobs(self, pool: str) -> list[PilotJob]:
        """Return the pool's jobs, including recently ended jobs."""
        return self._jobs_in_pool(pool, self._all_jobs())

    def _jobs_in_pool(self, pool: str, listed: Iterable[PilotJob]) -> list[PilotJob]:
        return [job for job in listed if (job.name.installation, job.name.pool) == (self.installation, pool)]

    def _all_jobs(self) -> list[PilotJob]:
        """Return the pilot jobs of all pools and installations that submit jobs as the same user."""
        output = self._query("squeue", "--me", "--states=all", "--noheader", f"--Format={jobs.FORMAT}")
        return list(jobs.parse_jobs(output))

    def _instances(self, listed: Iterable[PilotJob]) -> tuple[Instance, ...]:
        now = self._now()
        return jobs.sort_instances(jobs.to_instance(job, self.settings.notice_seconds, now) for job in listed)

    def _name(self, order: ProvisionOrder, ordinal: int) -> PilotName:
        return PilotName(self.installation, order.pool, ordinal, order.client_token)

    def _query(self, program: str, *arguments: str) -> str:
        """Return the output of a program. Raises ProviderError if it fails."""
        result = self._run(program, *arguments)
        if result.exit_code:
            raise failure(program, result, self.commands.place)
        return result.stdout

    def _run(self, program: str, *arguments: str) -> CommandResult:
        environment = submission.environment_lines(self.settings)
        return self._run_script(f"{environment}exec {shlex.join([program, *arguments])}\n", QUERY_SECONDS)

    def _run_script(self, script: str, seconds: float) -> CommandResult:
        return self.commands.run(["sh", "-s"], stdin=script, seconds=seconds)
