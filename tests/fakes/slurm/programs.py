"""Fake sbatch, squeue, scancel, sinfo and sacct that work on a state file.

python programs.py PROGRAM STATE ARGUMENTS...
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

State = dict[str, Any]
LIVING = ("PENDING", "RUNNING", "SUSPENDED")
PARTITIONS = {
    "gpu": ("1-00:00:00", "8:00:00", "up"),
    "short": ("5:00", "n/a", "up"),
    "debug": ("12:00:00", "n/a", "down"),
}
UNREACHABLE = "Unable to contact slurm controller (connect failure)"


class Failed(Exception):
    """Raised with the text that a program prints before it exits with 1."""


@contextlib.contextmanager
def open_state(path: str) -> Iterator[State]:
    with Path(path).open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        yield state
        file.seek(0)
        file.truncate()
        json.dump(state, file)


def options(arguments: Sequence[str]) -> dict[str, str]:
    named = (argument[2:].partition("=") for argument in arguments if argument.startswith("--"))
    return {name: value for name, _, value in named}


def start_jobs(state: State) -> None:
    """Start pending jobs on free nodes, in order."""
    used = [job["NodeList"] for job in state["jobs"] if job["State"] in ("RUNNING", "SUSPENDED")]
    free = [name for name in state["machines"] if name not in used]
    for job in state["jobs"]:
        if job["State"] == "PENDING" and job["Reason"] in ("None", "Resources", "Priority"):
            if free:
                job.update(State="RUNNING", Reason="None", NodeList=free.pop(0))
            else:
                job["Reason"] = "Resources"


def sbatch(state: State, arguments: Sequence[str]) -> str:
    named = options(arguments)
    check(state, named)
    return "" if "test-only" in named else submit(state, named, sys.stdin.read(), arguments)


def submit(state: State, named: dict[str, str], script: str, arguments: Sequence[str]) -> str:
    """Add a job with these options and return its ID."""
    submitted = state.get("accepts")
    if submitted is not None and len([job for job in state["jobs"] if job["State"] in LIVING]) >= submitted:
        raise Failed(
            "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates "
            "accounting/QOS policy (job submit limit, user's size and/or time limits)"
        )
    number = str(len(state["jobs"]) + 1)
    limit = f"{named['time']}:00" if "time" in named else PARTITIONS["gpu"][1]
    state["jobs"].append({
        "JobID": number, "State": "PENDING", "Reason": "None", "TimeLimit": limit, "TimeLeft": limit,
        "exit_code": "0", "restartcnt": "0", "tres-per-node": f"gres:{named.get('gres', '')}".rstrip(":"),
        "NodeList": "", "PreemptTime": "N/A", "Name": named["job-name"],
        "script": script, "arguments": list(arguments),
    })  # fmt: skip
    start_jobs(state)
    if state.get("loses_response"):
        raise Failed("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received")
    return number


def check(state: State, named: dict[str, str]) -> None:
    if state.get("rejection"):
        raise Failed(f"sbatch: error: Batch job submission failed: {state['rejection']}")
    partition = named.get("partition", "gpu")
    if partition not in PARTITIONS:
        raise Failed(
            f"sbatch: error: invalid partition specified: {partition}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )


def squeue(state: State, arguments: Sequence[str]) -> str:
    start_jobs(state)
    if name := options(arguments).get("name"):
        return "\n".join(job["JobID"] for job in state["jobs"] if job["Name"] == name)
    names = [field.partition(":")[0] for field in options(arguments)["Format"].split(",")]
    rows = [job for job in state["jobs"] if not job.get("purged")]
    return "\n".join("".join(f"{row[name]}|" for name in names) for row in rows)


def sinfo(state: State, arguments: Sequence[str]) -> str:
    named = options(arguments)
    if "version" in named:
        return "slurm-wlm 22.05.8"
    lines = []
    for number, machine in enumerate(state["machines"]):
        is_used = any(job["NodeList"] == machine and job["State"] == "RUNNING" for job in state["jobs"])
        for partition, (limit, default, available) in PARTITIONS.items():
            row = {
                "Partition": partition + "*" * (partition == "gpu"), "Available": available,
                "DefaultTime": default, "Time": limit, "NodeList": machine,
                "StateLong": "allocated" if is_used else "idle",
                "CPUsState": "8/0/0/8" if is_used else "0/8/0/8", "Memory": "16000",
                "AllocMem": "8192" if is_used else "0", "Gres": "gpu:l40s:2",
                "GresUsed": "gpu:l40s:2(IDX:0-1)" if is_used else "gpu:l40s:0(IDX:N/A)",
                "Features": f"rack{number % 2}", "Reason": "none", **state.get("broken", {}).get(machine, {}),
            }  # fmt: skip
            names = [field.partition(":")[0] for field in named["Format"].split(",")]
            lines.append("".join(f"{row[name]}|" for name in names))
    return "\n".join(lines)


def scancel(state: State, arguments: Sequence[str]) -> str:
    for job in state["jobs"]:
        if job["JobID"] in arguments and job["State"] in LIVING:
            job["State"] = "CANCELLED"
    return ""


def sacct(state: State, arguments: Sequence[str]) -> str:
    if not state.get("accounting"):
        raise Failed("Slurm accounting storage is disabled")
    if state["accounting"] == "down":
        raise Failed("sacct: error: Problem talking to the database: Connection refused")
    names = options(arguments)["name"].split(",")
    rows = [job for job in state["jobs"] if job["Name"] in names]
    return "\n".join(f"{row['JobID']}|{row['State']}|{row['Name']}" for row in rows)


PROGRAMS = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sinfo": sinfo, "sacct": sacct}


def main(program: str, path: str, arguments: Sequence[str]) -> int:
    with open_state(path) as state:
        state["calls"].append(program)
        if state.get("down"):
            prefix = (
                f"{program}: error: Batch job submission failed"
                if program == "sbatch"
                else "slurm_load_jobs error"
            )
            print(f"{prefix}: {UNREACHABLE}", file=sys.stderr)
            return 1
        try:
            output = PROGRAMS[program](state, arguments)
        except Failed as failed:
            print(failed, file=sys.stderr)
            return 1
    if output:
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
