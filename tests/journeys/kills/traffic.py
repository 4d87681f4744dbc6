"""Workloads that record their own starts, to detect any that are lost or doubled."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from berth.client import Client
from berth.client.errors import ClientError
from berth.client.models.workloads import Workload
from berth.db.embedded.cluster import EmbeddedCluster
from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, until

PREFIX = "work-"
LIVE_MAX = 3
PATIENCE = 1800.0  # time limit after many failed boots on a busy machine
ENDED = {"completed", "failed", "cancelled"}
# Holds a lock as long as it runs. A second process of the same replica would not get the lock.
COMMAND = """
cd "$BERTH_WORKSPACE" && exec 9>> "lock-$RANK"
flock --nonblock 9 || echo "$BERTH_RUN" >> "doubled-$RANK"
echo "$BERTH_RUN" >> "runs-$RANK"
trap 'exit 143' TERM
while [ ! -e enough ]; do sleep 0.2 9>&-; done
"""


@dataclass
class Traffic:
    """Users who submit, cancel and complete gangs of up to `replicas` replicas in a pool.

    `workspaces` is the directory of the pool's workspaces. Requests may fail while Berth is killed.
    """

    users: Mapping[str, Terminal]
    pool: str
    role: Mapping[str, Any]
    workspaces: Path
    random: Random
    replicas: int = 2
    submitted: dict[str, str] = field(default_factory=dict)
    allowed: dict[str, set[str]] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)

    def step(self) -> None:
        """Perform one user action, which may fail."""
        live = [name for name in self.submitted if name not in self.completed]
        with suppress(ClientError, OSError):
            match self.random.choice(["submit", "submit", "complete", "complete", "cancel"]):
                case "submit" if len(live) < LIVE_MAX:
                    self.submit()
                case "complete" if live:
                    self.complete(self.random.choice(live))
                case "cancel" if len(live) == LIVE_MAX:
                    self.cancel(self.random.choice(live))

    def submit(self) -> None:
        name = f"{PREFIX}{len(self.submitted)}"
        project = self.random.choice(sorted(self.users))
        # Recorded first: a request whose response is lost may have been accepted.
        self.submitted[name], self.allowed[name] = project, {"completed"}
        role = {"name": "worker", "replicas": self.random.randint(1, self.replicas), **self.role}
        self.client(project).workloads.submit({
            "name": name, "project": project, "pools": [self.pool], "command": ["sh", "-c", COMMAND],
            "roles": [role], "grace_period_seconds": 5, "restart_policy": {"kind": "on_failure"},
        })  # fmt: skip

    def complete(self, name: str) -> None:
        """Complete a workload if it has started."""
        workload = self.find(name)
        if workload is not None and (self.workspaces / workload.id / "runs-0").exists():
            (self.workspaces / workload.id / "enough").touch()
            self.completed.add(name)

    def cancel(self, name: str) -> None:
        self.allowed[name] = {"completed", "cancelled"}
        workload = self.find(name)
        if workload is not None:
            self.client(self.submitted[name]).workloads.cancel(workload.id)
            self.completed.add(name)

    def finish(
        self, admin: Client, details: Callable[[], object], repair: Callable[[], object] = lambda: None
    ) -> None:
        """Complete all workloads. Check that each accepted workload starts and ends. Failed boots no longer
        cause delays. `repair` is called repeatedly and does what an administrator of the machines does after
        the kills.
        """
        admin.node_pools.retry(self.pool)
        assert len(self.listed()) >= len(self.submitted) / 2, "most submissions succeed"

        def has_finished() -> bool:
            repair()
            for workload in self.listed():
                if workload.phase not in ENDED:
                    self.complete(workload.name)
            return all(workload.phase in ENDED for workload in self.listed())

        until(has_finished, PATIENCE, lambda: f"{[(w.name, w.phase) for w in self.listed()]}\n{details()}")

    def check(self) -> None:
        """Check that each workload ended as expected and that no replica ran twice at the same time."""
        workloads = self.listed()
        names = [workload.name for workload in workloads]
        assert len(names) == len(set(names)), "no submission is doubled"
        wrong = [(w.name, w.phase, w.message) for w in workloads if w.phase not in self.allowed[w.name]]
        assert wrong == []
        # A gang may replace a lost replica in the same run, but never while the former one still runs.
        assert list(self.workspaces.glob("*/doubled-*")) == []

    def listed(self) -> list[Workload]:
        """Return all workloads of these users, including those whose submission seemed to fail."""
        return [
            workload
            for project in self.users
            for workload in self.client(project).workloads.list(project=project)
            if workload.name.startswith(PREFIX)
        ]

    def find(self, name: str) -> Workload | None:
        return next((workload for workload in self.listed() if workload.name == name), None)

    def client(self, project: str) -> Client:
        return self.users[project].client()


# Rows that exist only while something runs. Each query returns their number.
LIVE_ROWS = {
    "live pods": "SELECT count(*) FROM projects_pod WHERE ended_at IS NULL",
    "allocations": "SELECT count(*) FROM scheduler_allocation WHERE released_at IS NULL",
    "device claims": "SELECT count(*) FROM scheduler_deviceclaim",
    "reservations": "SELECT count(*) FROM scheduler_reservation",
    "nodes": "SELECT count(*) FROM pools_node WHERE state <> 'ended'",
    "orders": "SELECT count(*) FROM pools_nodepool WHERE provisioning IS NOT NULL",
    "machines in use": "SELECT count(*) FROM pools_machineuse WHERE ended_at IS NULL",
    "node claims": "SELECT count(*) FROM pools_nodeclaim",
    "machines": "SELECT count(*) FROM pools_machine WHERE departed_at IS NULL",
    "hosts": "SELECT count(*) FROM pools_sshhost",
}


def live_rows(berth: Installation) -> dict[str, int]:
    """Return the number of database records of each kind that an idle installation would not have."""
    url = EmbeddedCluster(berth.home / "postgres").url()
    with psycopg.connect(url, autocommit=True) as connection:
        counts = {name: connection.execute(query).fetchone() for name, query in LIVE_ROWS.items()}
    return {name: row[0] for name, row in counts.items() if row and row[0]}
