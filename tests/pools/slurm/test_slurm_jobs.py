"""Tests for pilot jobs as Slurm lists them."""

from datetime import timedelta

import pytest

from pools.providers.base import InstanceState
from pools.providers.slurm.jobs import (
    FIELDS,
    PilotName,
    escape_installation_name,
    parse_jobs,
    parse_name,
    parse_time,
    to_instance,
)
from tests.pools.stage import START

# Recorded from Slurm 22.05 with the provider's format.
RECORDED = """\
1|CANCELLED|None|1:00:00|59:57|768|0|gres:gpu:2|n0|N/A|berth.here.hpc.0.t1|
2|RUNNING|None|1-00:00:00|23:59:29|0|0|gres:gpu:l40s:2|n1|N/A|berth.here.hpc.1.t1|
7|FAILED|BadConstraints|8:00:00|8:00:00|256|0|gres:gpu:2||N/A|berth.here.hpc.2.t1|
8|PENDING|Resources|30:00|30:00|0|0|N/A||N/A|berth.here.hpc.3.t1|
9|PENDING|ReqNodeNotAvail, UnavailableNodes:n1|UNLIMITED|UNLIMITED|0|0|gres:gpu||N/A|berth.here.hpc.4.t1|
10|RUNNING|None|30:00|9:00|0|0|N/A|n2|N/A|theirs|
"""
ROW = {
    "JobID": "5", "State": "RUNNING", "Reason": "None", "TimeLimit": "1:00:00", "TimeLeft": "30:00",
    "exit_code": "0", "restartcnt": "0", "tres-per-node": "gres:gpu:2", "NodeList": "n1",
    "PreemptTime": "N/A", "Name": "berth.here.hpc.0.t1",
}  # fmt: skip


def listed(**fields: str) -> tuple[InstanceState, str]:
    row = {**ROW, **fields}
    [job] = parse_jobs("".join(f"{row[name]}|" for name in FIELDS))
    instance = to_instance(job, 600, START)
    return instance.state, instance.message


def test_recorded_squeue_and_sacct_output_is_parsed() -> None:
    parsed = list(parse_jobs(RECORDED))
    assert [job.job_id for job in parsed] == ["1", "2", "7", "8", "9"]
    assert [job.gpus for job in parsed] == [2, 2, 2, 0, 1]
    assert [job.exit_code for job in parsed] == [3, 0, 1, 0, 0]
    assert [job.time_limit for job in parsed] == [3600, 86400, 28800, 1800, None]
    assert parsed[1].name == PilotName("here", "hpc", 1, "t1")
    assert parsed[1].machine == "n1"


@pytest.mark.parametrize("name", ["", "berth", "train.py", "berth.here.hpc.t1", "berth.here.hpc.x.t1"])
def test_jobs_with_other_names_are_ignored(name: str) -> None:
    assert parse_name(name) is None


def test_job_name_can_be_parsed_for_any_installation_name() -> None:
    names = ["a.b", "a-b", "a b", "a_b", "b'; rm"]
    safe = [escape_installation_name(name) for name in names]
    assert len(set(safe)) == len(names)
    for text in safe:
        name = PilotName(text, "hpc", 3, "t1")
        assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("9:05", 545), ("1:00:00", 3600), ("2-01:00:00", 176_400), ("UNLIMITED", None), ("", None)],
)
def test_slurm_times_are_parsed(text: str, seconds: int | None) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("fields", "state", "message"),
    [
        ({}, "ready", "Slurm job 5 is running on n1"),
        ({"State": "CONFIGURING"}, "booting", "Slurm is preparing n1 for job 5"),
        ({"State": "PENDING", "Reason": "Priority"}, "queued",
         "Slurm job 5 is queued: jobs with a higher priority come first (Priority)"),
        ({"State": "PENDING", "Reason": "QOSMaxJobsPerUserLimit"}, "queued",
         "Slurm job 5 is queued: a limit of the QOS is reached (QOSMaxJobsPerUserLimit)"),
        ({"State": "PENDING", "Reason": "AssocGrpGRES"}, "queued",
         "Slurm job 5 is queued: a limit of the account's group is reached (AssocGrpGRES)"),
        ({"State": "PENDING", "Reason": "ReqNodeNotAvail, UnavailableNodes:n1"}, "queued",
         ("Slurm job 5 is queued: machines that it needs are down, drained or reserved (ReqNodeNotAvail, "
         "UnavailableNodes:n1)")),
        ({"State": "PENDING", "Reason": "SomethingNew"}, "queued", "Slurm job 5 is queued: SomethingNew"),
        ({"State": "PENDING", "Reason": "PartitionTimeLimit"}, "stopped",
         "Slurm cannot start job 5: its time limit exceeds the partition's (PartitionTimeLimit)"),
        ({"State": "PENDING", "restartcnt": "1"}, "stopped", "Slurm has requeued job 5"),
        ({"State": "SUSPENDED"}, "stopped", "Slurm job 5 is suspended"),
        ({"State": "COMPLETING"}, "ending", "Slurm job 5 is ending on n1"),
        ({"State": "COMPLETING", "exit_code": str(75 << 8)}, "ending",
         "Slurm job 5 failed on n1: provider_settings.setup failed"),
        ({"State": "NODE_FAIL"}, "gone", "Slurm job 5 has ended on n1: its machine failed"),
        ({"State": "PREEMPTED"}, "gone", "Slurm job 5 has ended on n1: Slurm preempted it"),
        ({"State": "COMPLETING", "PreemptTime": "2026-06-01T12:00:00"}, "ending",
         "Slurm job 5 is ending on n1: Slurm preempted it"),
        ({"State": "PENDING", "restartcnt": "1", "PreemptTime": "2026-06-01T12:00:00"}, "stopped",
         "Slurm has preempted and requeued job 5"),
        ({"State": "TIMEOUT"}, "gone", "Slurm job 5 has ended on n1: its time limit has expired"),
        ({"State": "FAILED", "exit_code": str(74 << 8)}, "gone",
         "Slurm job 5 failed on n1: there is no Python 3.9 or newer. Load one in provider_settings.setup"),
        ({"State": "FAILED", "exit_code": str(9 << 8)}, "gone", "Slurm job 5 failed on n1: it exited with 9"),
        ({"TimeLimit": "5:00", "TimeLeft": "5:00"}, "stopped",
         ("the time limit of Slurm job 5 is 5m, which leaves no time for work: the end is announced 10m "
         "in advance. Set time_limit, or lower notice_lead")),
    ],
)  # fmt: skip
def test_job_state_is_described_in_plain_text(fields: dict[str, str], state: str, message: str) -> None:
    assert listed(**fields) == (state, message)


@pytest.mark.parametrize(
    ("fields", "is_evicted"),
    [
        ({}, False),
        ({"State": "PREEMPTED"}, True),
        ({"State": "COMPLETING", "PreemptTime": "2026-06-01T12:00:00"}, True),
        ({"State": "CANCELLED"}, True),
        ({"State": "SUSPENDED"}, True),
        ({"State": "PENDING", "restartcnt": "1"}, True),
        ({"State": "COMPLETING"}, False),  # its machine may have failed
        ({"State": "NODE_FAIL"}, False),
        ({"State": "TIMEOUT"}, False),
        ({"TimeLimit": "5:00", "TimeLeft": "5:00"}, False),
    ],
)
def test_only_jobs_ended_by_slurm_or_a_user_count_as_evicted(
    fields: dict[str, str], is_evicted: bool
) -> None:
    row = {**ROW, **fields}
    [job] = parse_jobs("".join(f"{row[name]}|" for name in FIELDS))
    assert to_instance(job, 600, START).is_evicted is is_evicted


@pytest.mark.parametrize(
    ("left", "seconds"), [("10:01", None), ("10:00", 600), ("0:30", 30), ("UNLIMITED", None)]
)
def test_end_of_an_allocation_is_announced_in_advance(left: str, seconds: int | None) -> None:
    row = {**ROW, "TimeLeft": left}
    [job] = parse_jobs("".join(f"{row[name]}|" for name in FIELDS))
    interruption = to_instance(job, 600, START).interruption
    if seconds is None:
        assert interruption is None
    else:
        assert interruption is not None
        assert interruption.at == START + timedelta(seconds=seconds)
        assert interruption.reason == "the Slurm allocation 5 ends at its time limit"
