"""Parse jobs, machines and partitions in responses of all supported slurmrestd versions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pools.providers.preview import PreviewedNode
from pools.providers.slurm.cluster import Partition, make_machine
from pools.providers.slurm.jobs import RUNNING_STATES, PilotJob, PilotName, gres_count, parse_name

Row = Mapping[str, Any]
# Job flags that squeue shows instead of the job's state, in order of precedence.
JOB_FLAGS = (
    "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT",
    "STOPPED", "REVOKED", "SIGNALING", "STAGE_OUT",
)  # fmt: skip


class UnreadableResponse(ValueError):
    """Raised if a response lacks a value that every version of the API contains."""


def object_rows(answer: Row, key: str) -> list[Row]:
    """Return the list of objects under `key` in the response. Raises UnreadableResponse if there is no such
    list.
    """
    listed = answer.get(key)
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise UnreadableResponse(key)
    return listed


def parse_jobs(answer: Row, user: str, now: float) -> Iterator[PilotJob]:
    """Yield the user's pilot jobs of all installations. `now` is a Unix time."""
    for row in object_rows(answer, "jobs"):
        name = parse_name(str(row.get("name")))
        if name is not None and _parse_user(row, "user_name") == user:
            yield _parse_job(row, name, now)


def parse_accounting(answer: Row, user: str) -> Iterator[PilotJob]:
    """Yield the user's pilot jobs in a response from the accounting database."""
    for row in object_rows(answer, "jobs"):
        name = parse_name(str(row.get("name")))
        state = row.get("state")
        if name is not None and _parse_user(row, "user") == user:
            current = state.get("current") if isinstance(state, dict) else None
            yield PilotJob(_job_id(row), name, _job_state(current))


def parse_partitions(partitions: Row, nodes: Row) -> Iterator[Partition]:
    """Yield the partitions with their machines."""
    machines = [
        (_parse_names(row.get("partitions")), _parse_node(row)) for row in object_rows(nodes, "nodes")
    ]
    for row in object_rows(partitions, "partitions"):
        name = row.get("name")
        if not isinstance(name, str):
            raise UnreadableResponse("name")
        defaults, maximums = _to_object(row.get("defaults")), _to_object(row.get("maximums"))
        state = _to_object(row.get("partition")).get("state", row.get("state"))
        yield Partition(
            name, _is_default(row), "UP" in _parse_names(state),
            _minutes_to_seconds(defaults.get("time", row.get("default_time_limit"))),
            _minutes_to_seconds(maximums.get("time", row.get("max_time_limit"))),
            tuple(node for names, node in machines if name in names),
        )  # fmt: skip


def slurm_version(answer: Row) -> str:
    """Return the version of Slurm that sent the response, or an empty string if the response does not state
    it.
    """
    meta = _to_object(answer.get("meta"))
    return str(_to_object(meta.get("Slurm") or meta.get("slurm")).get("release") or "")


def parse_number(value: object) -> int | None:
    """Return the number, or None if the value is infinite or missing."""
    if isinstance(value, dict):
        is_number = value.get("set") and not value.get("infinite")
        return parse_number(value.get("number")) if is_number else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return int(value)


def _parse_job(row: Row, name: PilotName, now: float) -> PilotJob:
    state, time_limit = _job_state(row.get("job_state")), _minutes_to_seconds(row.get("time_limit"))
    end = parse_number(row.get("end_time"))
    is_timed = state in RUNNING_STATES and end is not None and time_limit is not None
    return PilotJob(
        _job_id(row), name, state, str(row.get("state_reason") or ""), time_limit,
        max(0, int((end or 0) - now)) if is_timed else None, _exit_code(row.get("exit_code")),
        parse_number(row.get("restart_cnt")) or 0, gres_count(str(row.get("tres_per_node") or "")),
        str(row.get("nodes") or ""), bool(parse_number(row.get("preempt_time"))),
    )  # fmt: skip


def _parse_user(row: Row, key: str) -> str:
    """Return the user who owns a job. Raises UnreadableResponse if the user is missing."""
    user = row.get(key)
    if not isinstance(user, str) or not user:
        raise UnreadableResponse(key)
    return user


def _job_id(row: Row) -> str:
    job_id = parse_number(row.get("job_id"))
    if not job_id:
        raise UnreadableResponse("job_id")
    return str(job_id)


def _job_state(value: object) -> str:
    states = _parse_names(value)
    if not states:
        raise UnreadableResponse("job_state")
    return next((flag for flag in JOB_FLAGS if flag in states), states[0])


def _exit_code(value: object) -> int:
    if isinstance(value, dict):
        return parse_number(value.get("return_code")) or 0
    return (parse_number(value) or 0) >> 8


def _parse_node(row: Row) -> PreviewedNode:
    states = [*_parse_names(row.get("state")), *_parse_names(row.get("state_flags"))]
    words = [state.lower() for state in states]
    if not states or not isinstance(row.get("name"), str):
        raise UnreadableResponse("state")
    return make_machine(
        row["name"], "+".join(word for word in words if word != "not_responding"),
        cores=(parse_number(row.get("alloc_cpus")) or 0, parse_number(row.get("cpus")) or 0),
        memory_mib=(parse_number(row.get("alloc_memory")) or 0, parse_number(row.get("real_memory")) or 0),
        gres=(str(row.get("gres_used") or ""), str(row.get("gres") or "")),
        reason=str(row.get("reason") or ""), features=",".join(_parse_names(row.get("features"))),
        is_silent="not_responding" in words,
    )  # fmt: skip


def _is_default(row: Row) -> bool:
    flags = _parse_names(row.get("flags"))
    return "default" in [flag.lower() for flag in flags]


def _minutes_to_seconds(value: object) -> int | None:
    """Convert minutes to seconds. Return None if there is no limit."""
    minutes = parse_number(value)
    return None if minutes is None else minutes * 60


def _parse_names(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return [name for name in value.split(",") if name]
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _to_object(value: object) -> Row:
    return value if isinstance(value, dict) else {}
