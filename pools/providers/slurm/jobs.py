"""Convert Slurm's lists of pilot jobs to instances.

A job's name identifies its installation, pool, launch request and ordinal, because every version of Slurm
lists it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from berth.core.values.durations import format_duration
from pools.providers.base import Instance, InstanceState, Interruption
from pools.providers.slurm.reasons import HOPELESS_REASONS, describe_end, describe_reason

FIELDS = (
    "JobID", "State", "Reason", "TimeLimit", "TimeLeft", "exit_code", "restartcnt", "tres-per-node",
    "NodeList", "PreemptTime", "Name",
)  # fmt: skip
# The suffix "|" follows each value. Without a width, Slurm does not truncate values.
FORMAT = ",".join(f"{name}:|" for name in FIELDS)
PREFIX = "berth"
QUEUED_STATES = ("PENDING",)
STARTING_STATES = ("CONFIGURING",)
RUNNING_STATES = ("RUNNING", "SIGNALING", "STAGE_OUT", "RESIZING")
ENDING_STATES = ("COMPLETING", "STOPPED")
EVICTED_STATES = ("CANCELLED", "PREEMPTED", "REVOKED")
UNUSABLE_STATES = ("SUSPENDED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
NO_TIMES = ("", "N/A", "None", "Unknown")
ENDS = (InstanceState.ENDING, InstanceState.GONE)
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PilotName:
    """Name of a pilot job, split into its parts."""

    installation: str
    pool: str
    ordinal: int
    token: str

    def __str__(self) -> str:
        return f"{PREFIX}.{self.installation}.{self.pool}.{self.ordinal}.{self.token}"


def escape_installation_name(name: str) -> str:
    """Escape an installation's name for use in a job name.

    Letters, digits and dashes are unchanged. Different names stay distinct.
    """
    return "".join(char if re.match(r"[A-Za-z0-9-]", char) else f"_{ord(char):x}_" for char in name)


def parse_name(text: str) -> PilotName | None:
    """Parse a job's name. Return None if the job is not a pilot job."""
    prefix, _, rest = text.partition(".")
    parts = rest.rsplit(".", 3)
    if prefix != PREFIX or len(parts) != 4 or not parts[2].isdecimal():
        return None
    installation, pool, ordinal, token = parts
    return PilotName(installation, pool, int(ordinal), token)


@dataclass(frozen=True, slots=True)
class PilotJob:
    """Pilot job. Durations are in seconds, or None.

    `exit_code` is 0 if a signal ended the job. `is_preempted` is true once Slurm begins to preempt it.
    """

    job_id: str
    name: PilotName
    state: str
    reason: str = ""
    time_limit: int | None = None
    time_left: int | None = None
    exit_code: int = 0
    restarts: int = 0
    gpus: int = 0
    machine: str = ""
    is_preempted: bool = False

    @property
    def instance_id(self) -> str:
        """Job ID and part of the launch request's token. The ID alone is not unique, because Slurm reuses
        job IDs.
        """
        return f"{self.job_id}-{self.name.token[:8]}"

    @property
    def is_active_job(self) -> bool:
        return self.state in (*QUEUED_STATES, *STARTING_STATES, *RUNNING_STATES, *UNUSABLE_STATES)


def parse_jobs(output: str) -> Iterator[PilotJob]:
    """Yield all installations' pilot jobs in squeue's output."""
    for line in output.splitlines():
        values = [value.strip() for value in line.rstrip().rstrip("|").split("|")]
        if len(values) != len(FIELDS):
            continue
        row = dict(zip(FIELDS, values, strict=True))
        name = parse_name(row["Name"])
        if name is not None:
            yield PilotJob(
                row["JobID"], name, row["State"], row["Reason"], parse_time(row["TimeLimit"]),
                parse_time(row["TimeLeft"]), _parse_number(row["exit_code"]) >> 8,
                _parse_number(row["restartcnt"]), gres_count(row["tres-per-node"]), row["NodeList"],
                row["PreemptTime"] not in NO_TIMES,
            )  # fmt: skip


def parse_accounting(output: str) -> Iterator[PilotJob]:
    """Yield the pilot jobs in sacct's output, in the format JobID|State|JobName."""
    for line in output.splitlines():
        job_id, _, rest = line.partition("|")
        state, _, text = rest.partition("|")
        name = parse_name(text)
        if name is not None and job_id.isdecimal() and state:
            yield PilotJob(job_id, name, state.split()[0])  # the state may be "CANCELLED by 1000"


def parse_time(text: str) -> int | None:
    """Convert a Slurm duration such as 1-02:30:00 to seconds.

    Return None for UNLIMITED and other values that are not durations.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def to_instance(job: PilotJob, notice_lead: int, now: datetime) -> Instance:
    """Convert the job to an instance.

    The interruption is announced `notice_lead` seconds before the allocation ends.
    """
    state, message = _instance_state(job, notice_lead)
    interruption = None
    if state is InstanceState.READY and job.time_left is not None and job.time_left <= notice_lead:
        interruption = Interruption(
            f"the Slurm allocation {job.job_id} ends at its time limit",
            now + timedelta(seconds=job.time_left),
            is_boot_failure=True,
        )
    return Instance(
        instance_id=job.instance_id, ordinal=job.name.ordinal, state=state, client_token=job.name.token,
        devices=tuple(map(str, range(job.gpus))), interruption=interruption, prepared=False, message=message,
        is_evicted=_is_evicted(job, state),
    )  # fmt: skip


def _is_evicted(job: PilotJob, state: InstanceState) -> bool:
    """Return whether the job was stopped by Slurm or a user, rather than by its own failure."""
    if state is InstanceState.STOPPED:
        return job.state in UNUSABLE_STATES or job.restarts > 0
    return state in ENDS and (job.is_preempted or job.state in EVICTED_STATES)


def _instance_state(job: PilotJob, notice_lead: int) -> tuple[InstanceState, str]:
    if job.is_active_job and job.time_limit is not None and job.time_limit <= notice_lead:
        limit, lead = format_duration(job.time_limit), format_duration(notice_lead)
        message = (
            f"the time limit of Slurm job {job.job_id} is {limit}, which leaves no time for work: the end is "
            f"announced {lead} in advance. Set time_limit, or lower notice_lead"
        )
        return InstanceState.STOPPED, message
    if job.state in QUEUED_STATES and job.restarts:
        cause = "preempted and requeued" if job.is_preempted else "requeued"
        return InstanceState.STOPPED, f"Slurm has {cause} job {job.job_id}"
    if job.state in QUEUED_STATES and job.reason in HOPELESS_REASONS:
        return InstanceState.STOPPED, f"Slurm cannot start job {job.job_id}: {describe_reason(job.reason)}"
    if job.state in QUEUED_STATES:
        return InstanceState.QUEUED, f"Slurm job {job.job_id} is queued: {describe_reason(job.reason)}"
    if job.state in STARTING_STATES:
        return InstanceState.BOOTING, f"Slurm is preparing {job.machine} for job {job.job_id}"
    if job.state in RUNNING_STATES:
        return InstanceState.READY, f"Slurm job {job.job_id} is running on {job.machine}"
    if job.state in UNUSABLE_STATES:
        return InstanceState.STOPPED, f"Slurm job {job.job_id} is {job.state.lower().replace('_', ' ')}"
    if job.state in ENDING_STATES:
        return InstanceState.ENDING, _describe_job_end(job)
    return InstanceState.GONE, _describe_job_end(job)


def _describe_job_end(job: PilotJob) -> str:
    return describe_end(job.job_id, job.state, job.exit_code, job.machine, is_preempted=job.is_preempted)


def sort_instances(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    return tuple(sorted(instances, key=lambda instance: (instance.ordinal, _job_number(instance))))


def _job_number(instance: Instance) -> int:
    return _parse_number(instance.instance_id.partition("-")[0])


def _parse_number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def gres_count(text: str) -> int:
    """Return the device count in a request such as gres:gpu:a100:2.

    The result is 1 if the request has no count, and 0 if the text is not a GRES request.
    """
    last = re.split(r"[:/=]", text)[-1]
    if last.isdecimal():
        return int(last)
    return 1 if re.match(r"gres[:/]", text) else 0
