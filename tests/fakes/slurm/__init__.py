"""Replacements for Slurm's programs, with output recorded from Slurm 22.05."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pools.providers.commands import LocalCommands
from tests.fakes.slurm.programs import PROGRAMS, open_state

_LAUNCHER = """#!/bin/sh
exec {python} -S -E {programs} {name} {state} "$@"
"""


class FakeSlurm:
    """A fake Slurm partition `gpu` of four nodes with two GPUs each. Jobs start at once if a node is free."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, root / "state.json"
        (root / "bin").mkdir(parents=True)
        (root / "home").mkdir()
        for name in PROGRAMS:
            path = root / "bin" / name
            source = Path(__file__).with_name("programs.py")
            path.write_text(
                _LAUNCHER.format(python=sys.executable, programs=source, name=name, state=self.state)
            )
            path.chmod(0o755)
        self.state.write_text(json.dumps({"machines": ["n0", "n1", "n2", "n3"], "jobs": [], "calls": []}))

    @property
    def commands(self) -> LocalCommands:
        path = f"{self.root / 'bin'}:/usr/bin:/bin"
        return LocalCommands({"PATH": path, "HOME": str(self.root / "home")})

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.state.read_text())["jobs"])

    def queue(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        return [job["Name"] for job in self.jobs if job["State"] in ("PENDING", "RUNNING", "SUSPENDED")]

    @property
    def calls(self) -> list[str]:
        """Return the programs that were called, in order."""
        return list(json.loads(self.state.read_text())["calls"])

    def change(self, job: int = 0, **fields: str) -> None:
        """Change fields of a job, such as State and Reason, as squeue prints them."""
        with self.open() as state:
            state["jobs"][job].update(fields)

    def add(self, name: str, **fields: str) -> None:
        """Add a job that Berth did not submit."""
        with self.open() as state:
            number = str(len(state["jobs"]) + 1)
            state["jobs"].append({**state["jobs"][0], "JobID": number, "Name": name, **fields})

    def purge(self) -> None:
        """Forget ended jobs, as Slurm does after some minutes. The accounting database keeps the jobs."""
        with self.open() as state:
            for job in state["jobs"]:
                job["purged"] = job["State"] not in ("PENDING", "RUNNING", "SUSPENDED")

    def set(self, **values: Any) -> None:
        """Set `machines`, `broken`, `down`, `accepts` (jobs), `accounting` or the result of sbatch.

        `rejection` is an error of sbatch. If `loses_response` is set, sbatch fails after the submission.
        `accounting` is True, "down" if the database does not respond, or False if there is none.
        """
        with self.open() as state:
            state.update(values)

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        with open_state(str(self.state)) as state:
            yield state
