"""Explain why Slurm does not start a job, or why a job has ended."""

# Reasons why Slurm never starts a job unless the job or the cluster changes.
HOPELESS_REASONS = frozenset({
    "AccountNotAllowed", "AssocMaxCpuPerJobLimit", "AssocMaxNodePerJobLimit",
    "AssocMaxWallDurationPerJobLimit", "BadConstraints",
    "InvalidAccount", "InvalidQOS", "PartitionNodeLimit", "PartitionTimeLimit",
    "QOSMaxCpuPerJobLimit", "QOSMaxGRESPerJob", "QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "QOSNotAllowed",
})  # fmt: skip
WORDS = {
    "AccountNotAllowed": "the partition does not allow the account",
    "BadConstraints": "no machine has what the job requests",
    "BeginTime": "its earliest start time has not been reached",
    "Dependency": "an earlier job with the same name has not ended",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "JobHeldAdmin": "a Slurm administrator has put it on hold",
    "JobHeldUser": "it is on hold",
    "Licenses": "its licenses are in use",
    "NodeDown": "a machine that it needs is down",
    "None": "Slurm has not considered it yet",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it requests more than the partition allows",
    "PartitionTimeLimit": "its time limit exceeds the partition's",
    "Priority": "jobs with a higher priority come first",
    "QOSNotAllowed": "the partition does not allow the QOS",
    "ReqNodeNotAvail": "machines that it needs are down, drained or reserved",
    "Reservation": "it is waiting for its reservation",
    "Resources": "it is waiting for resources to become free",
}
# Descriptions of reason groups, by prefix. For example, QOS covers QOSMaxJobsPerUserLimit.
PREFIXES = (
    ("QOS", "a limit of the QOS is reached"),
    ("AssocGrp", "a limit of the account's group is reached"),
    ("Assoc", "a limit of the account or user is reached"),
)
# Explanations of the pilot script's exit codes.
EXITS = {
    71: "its private file is missing. Set provider_settings.directory to a directory that the login node and "
    "all machines of the partition share",
    72: "its temporary directory could not be created",
    73: "it could not download the agent. Machines of the partition must reach BERTH_PUBLIC_URL",
    74: "there is no Python 3.9 or newer. Load one in provider_settings.setup",
    75: "provider_settings.setup failed",
}
ENDS = {
    "BOOT_FAIL": "the machine failed to boot",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "it has completed",
    "DEADLINE": "its deadline has passed",
    "NODE_FAIL": "its machine failed",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PREEMPTED": "Slurm preempted it",
    "REVOKED": "Slurm revoked it",
    "TIMEOUT": "its time limit has expired",
}


def describe_reason(reason: str) -> str:
    """Explain why Slurm does not start a job, including Slurm's own term for the reason."""
    word = reason.partition(",")[0].strip("()") or "None"
    words = WORDS.get(word) or next((text for prefix, text in PREFIXES if word.startswith(prefix)), "")
    return f"{words} ({reason.strip('()')})" if words else reason


def describe_end(
    job_id: str, state: str, exit_code: int, machine: str, *, is_preempted: bool = False
) -> str:  # fmt: skip
    """Explain why a job has ended or is ending.

    A job that is still ending has an exit code once its script has exited.
    """
    place = f" on {machine}" if machine else ""
    if is_preempted:
        verb = "is ending" if state == "COMPLETING" else "has ended"
        return f"Slurm job {job_id} {verb}{place}: {ENDS['PREEMPTED']}"
    if state == "FAILED" or (state == "COMPLETING" and exit_code):
        failure = EXITS.get(exit_code, f"it exited with {exit_code}")
        return f"Slurm job {job_id} failed{place}: {failure}"
    if state == "COMPLETING":
        return f"Slurm job {job_id} is ending{place}"
    return f"Slurm job {job_id} has ended{place}: {ENDS.get(state, state)}"
