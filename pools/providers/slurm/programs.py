"""Control a Slurm cluster with its command-line programs."""

import shlex
from collections.abc import Mapping, Sequence

from pools.providers.base import LaunchRequest
from pools.providers.commands import CommandResult, Commands
from pools.providers.slurm import cluster, jobs, submission
from pools.providers.slurm.client import Examination, Submission
from pools.providers.slurm.errors import clean_output, has_no_accounting, program_error
from pools.providers.slurm.jobs import PilotJob, PilotName
from pools.providers.slurm.settings import SlurmSettings

QUERY_SECONDS = 30.0
SUBMIT_SECONDS = 60.0
HISTORY_DAYS = 2


class SlurmPrograms:
    """Client that runs Slurm's programs on this machine or on a login node."""

    def __init__(self, settings: SlurmSettings, commands: Commands) -> None:
        self.settings, self.commands = settings, commands

    def list_jobs(self) -> list[PilotJob]:
        output = self._query("squeue", "--me", "--states=all", "--noheader", f"--Format={jobs.FORMAT}")
        return list(jobs.parse_jobs(output))

    def ended_jobs(self, names: Sequence[PilotName]) -> list[PilotJob]:
        result = self._run(
            "sacct", "--allocations", "--noheader", "--parsable2", f"--starttime=now-{HISTORY_DAYS}days",
            "--format=JobID,State,JobName", f"--name={','.join(map(str, names))}",
        )  # fmt: skip
        if result.exit_code and not has_no_accounting(result):
            raise program_error("sacct", result, self.commands.machine_name)
        return list(jobs.parse_accounting(result.stdout))

    def submit(
        self, order: LaunchRequest, names: Sequence[PilotName], variables: Mapping[str, str],
        living: Sequence[PilotName],
    ) -> Submission:  # fmt: skip
        script = submission.submission_script(self.settings, order, names, variables, living)
        result = self._run_script(script, SUBMIT_SECONDS + order.count)
        error = program_error("sbatch", result, self.commands.machine_name) if result.exit_code else None
        return Submission(len(result.stdout.split()), error)

    def cancel(self, jobs: Sequence[PilotJob]) -> None:
        ids, names = [job.job_id for job in jobs], [job.name for job in jobs]
        result = self._run_script(submission.cancel_script(self.settings, ids, names), SUBMIT_SECONDS)
        if result.exit_code:
            raise program_error("scancel", result, self.commands.machine_name)

    def examine(self, order: LaunchRequest) -> Examination:
        """Return the partitions, and the error message if `sbatch --test-only` rejects the job."""
        version = self._query("sinfo", "--version").strip()
        listed = self._query("sinfo", "--Node", "--noheader", f"--Format={cluster.FORMAT}")
        partitions = list(cluster.parse_partitions(listed))
        result = self._run_script(submission.test_script(self.settings, order), QUERY_SECONDS)
        rejection = clean_output(result.stderr) if result.exit_code else ""
        return Examination(f"{version} on {self.commands.machine_name}", partitions, rejection)

    def _query(self, program: str, *arguments: str) -> str:
        result = self._run(program, *arguments)
        if result.exit_code:
            raise program_error(program, result, self.commands.machine_name)
        return result.stdout

    def _run(self, program: str, *arguments: str) -> CommandResult:
        environment = submission.environment_lines(self.settings)
        return self._run_script(f"{environment}exec {shlex.join([program, *arguments])}\n", QUERY_SECONDS)

    def _run_script(self, script: str, seconds: float) -> CommandResult:
        return self.commands.run(["sh", "-s"], stdin=script, seconds=seconds)
