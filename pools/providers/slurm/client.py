"""Interface to a Slurm cluster, implemented for Slurm's programs and for slurmrestd."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pools.providers.base import LaunchRequest, ProviderError
from pools.providers.preview import Finding
from pools.providers.slurm.cluster import Partition
from pools.providers.slurm.jobs import PilotJob, PilotName


@dataclass(frozen=True, slots=True)
class Submission:
    """Outcome of submitting jobs: the number that Slurm accepted, and the error that stopped the submission,
    if any.
    """

    accepted: int
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """Partitions of a cluster, and whether Slurm would accept a pilot job.

    If not, `rejection` is Slurm's message. `findings` describe the access to the cluster.
    """

    source: str
    partitions: Sequence[Partition]
    rejection: str = ""
    findings: tuple[Finding, ...] = ()


class SlurmClient(Protocol):
    """Client that accesses a Slurm cluster as one user. Every call raises ProviderError if it fails."""

    def list_jobs(self) -> list[PilotJob]:
        """Return the user's pilot jobs in all pools and installations, including those that ended recently.

        A list that cannot be parsed raises ProviderError.
        """
        ...

    def ended_jobs(self, names: Sequence[PilotName]) -> list[PilotJob]:
        """Return the named jobs from the accounting database, or none if there is no database."""
        ...

    def submit(
        self, order: LaunchRequest, names: Sequence[PilotName], variables: Mapping[str, str],
        living: Sequence[PilotName],
    ) -> Submission:  # fmt: skip
        """Submit a job for each name, in order, until Slurm rejects one.

        `variables` are the pilot script's shell variables, which other users cannot read. `living` are jobs
        that may not have read their variables yet. After a TIMEOUT or BROKEN error, the job may still have
        been submitted.
        """
        ...

    def cancel(self, jobs: Sequence[PilotJob]) -> None:
        """Cancel the jobs. Jobs that have already ended are ignored."""
        ...

    def examine(self, order: LaunchRequest) -> Examination:
        """Return the partitions, and whether Slurm would accept the request's job, without submitting it."""
        ...
