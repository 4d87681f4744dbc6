"""Test that random kills around a Slurm cluster lose no work, run nothing twice and leave nothing behind."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest

from pools.providers.base import ProviderError
from tests.contracts.slurm.cluster import (
    MACHINES,
    SlurmCluster,
    missing_programs,
    processes_of,
    slurm_cluster,
)
from tests.contracts.slurm.rest import SlurmRestServer, allow_tokens, missing_rest
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, InstallContext, command_line, until
from tests.journeys.kills.faults import Fault, Hanging, find_processes, inject_random_faults, kill, kill_berth
from tests.journeys.kills.slurm_access import Access, ProgramAccess, RestAccess, faulty_proxy
from tests.journeys.kills.traffic import PATIENCE, Traffic, live_rows
from tests.journeys.on_slurm.slurm_pool import ROLE, create_pool, provider_settings
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]
KILLS = {"programs": 100, "slurmrestd": 30}  # default numbers, which BERTH_KILLS overrides
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
NO_RESPONSE = (AssertionError, ProviderError)  # errors while the controller hangs or restarts
FOREIGN = ("train.py", "berth.other.hpc.0.0123456789abcdef")


@dataclass
class Story:
    """A pool on a Slurm cluster that also runs two foreign jobs."""

    berth: Installation
    slurm: SlurmCluster
    access: Access
    admin: Terminal
    traffic: Traffic
    random: Random
    foreign: dict[str, str]
    hanging: Hanging = field(default_factory=Hanging)

    def faults(self) -> list[Fault]:
        def running(*words: str) -> Callable[[], list[int]]:
            return lambda: find_processes(self.job_processes(), *words)

        def controller() -> list[int]:
            return [self.slurm.processes["slurmctld"].pid]

        return [
            *kill_berth(self.berth, lambda: self.berth.start("--demo")),
            *self.access.faults(self.hanging),
            Fault("controller is killed", self.restart_controller, 2),
            Fault("daemon of a machine is killed", self.restart_machine, 2),
            self.hanging.hang("controller", controller, 2),
            kill("step of a job", self.steps, 2),
            kill("script of a job", running("slurm_script"), 2),
            kill("agent", running("berth-agent", "run"), 2),
            self.hanging.hang("agent", running("berth-agent", "run")),
            kill("shim", running("shim"), 2),
            kill("node", running("ray.node.main")),
            kill("raylet", running("raylet/raylet")),
            Fault("job is cancelled", self.cancel_job),
        ]

    def job_processes(self) -> list[int]:
        """Return the processes of pilot jobs."""
        berth = self.berth.processes()
        daemons = {process.pid for process in self.slurm.processes.values()}
        foreign = {pid for name in FOREIGN for pid in processes_of(f"SLURM_JOB_NAME={name}")}
        return [pid for pid in processes_of(self.slurm.root) if pid not in {*berth, *daemons, *foreign}]

    def steps(self) -> list[int]:
        steps = {pid: command_line(pid) for pid in find_processes(all_pids(), "slurmstepd:", ".batch]")}
        return [
            pid for pid, command in steps.items()
            if command.partition("[")[2].partition(".")[0] not in self.foreign.values()
        ]  # fmt: skip

    def restart_controller(self, _: Random) -> str:
        self.slurm.restart_controller()
        return "slurmctld"

    def restart_machine(self, random: Random) -> str:
        name = f"n{random.randrange(MACHINES)}"
        self.slurm.restart_machine(name)
        return name

    def cancel_job(self, random: Random) -> str:
        try:
            lines = self.slurm.run("squeue", "-h", "-o", "%i %j").splitlines()
            jobs = sorted(line.split()[0] for line in lines if ".journey." in line)
            if not jobs:
                return ""
            job = random.choice(jobs)
            self.slurm.run("scancel", job)
        except NO_RESPONSE:
            return ""
        return job

    def pilot_files(self) -> list[Path]:
        """Return the private files of job submissions. Submissions through slurmrestd have none."""
        return list((self.slurm.root / "shared").glob("pilots/*"))

    def between(self) -> None:
        self.traffic.step()
        if self.slurm.processes["slurmctld"].pid in self.hanging.pids:
            return  # the process would not respond, and the next fault would have to wait
        with suppress(*NO_RESPONSE):
            self.slurm.resume_machines()

    def finish_traffic(self) -> None:
        self.traffic.finish(self.admin.client(), self.describe, self.slurm.resume_machines)

    def is_empty(self) -> bool:
        """Return whether only foreign jobs are left, and no process or directory of Berth."""
        self.slurm.resume_machines()
        return sorted(self.slurm.queue()) == sorted(FOREIGN) and not self.slurm.leftovers()

    def describe(self) -> str:
        history = self.admin.client().node_pools.history("hpc", limit=60)
        events = [f"{event.at} {event.kind} {event.node} {event.reason}" for event in history]
        logs = sorted((self.slurm.root / "shared/logs").glob("*"), key=os.path.getmtime)[-4:]
        texts = [f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in logs]
        queue = self.slurm.run("squeue", "--states=all")
        return "\n".join([f"seed {SEED}", *events, *texts, queue, *self.slurm.leftovers()])


@pytest.fixture(params=["programs", "slurmrestd"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "slurmrestd" and (missing := missing_rest()):
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    return str(request.param)


@pytest.fixture
def kills(kind: str) -> int:
    return int(os.environ.get("BERTH_KILLS", KILLS[kind]))


@pytest.fixture
def story(installing: InstallContext, kind: str, tmp_path: Path) -> Iterator[Story]:
    print(f"seed: BERTH_KILLS_SEED={SEED}")
    port = free_port()
    with (
        slurm_cluster(allow_tokens) as slurm,
        access_to(slurm, kind) as access,
        installing(port, **access.installation_settings(port)) as berth,
    ):
        users = {name: sign_in(berth, name, tmp_path / name) for name in ("admin", "dave", "grace")}
        settings = provider_settings(slurm, **access.provider_settings())
        create_pool(users["admin"], settings, "boot_failure_limit=0", options=access.pool_options(tmp_path))
        foreign = {name: submit_foreign_job(slurm, name) for name in FOREIGN}
        until(lambda: slurm.run("squeue", "-h", "-t", "running", "-o", "%j").count("\n") == len(FOREIGN), 60)
        slurm.stop_controller()  # saves its state, so that a controller that is killed later forgets no job
        slurm.start_controller()
        random = Random(SEED)
        projects = {"vision": users["dave"], "ads": users["grace"]}
        workspaces = slurm.root / "shared" / "workspaces"
        traffic = Traffic(projects, "hpc", ROLE, workspaces, random)
        yield Story(berth, slurm, access, users["admin"], traffic, random, foreign)


@contextmanager
def access_to(slurm: SlurmCluster, kind: str) -> Iterator[Access]:
    if kind == "programs":
        yield ProgramAccess(slurm)
        return
    server = SlurmRestServer(slurm)
    server.start()
    with faulty_proxy(server.port) as proxy:
        yield RestAccess(server, proxy)


def submit_foreign_job(slurm: SlurmCluster, name: str) -> str:
    options = ["--parsable", "--exclusive", f"--job-name={name}", "--output=/dev/null", "--chdir=/"]
    return slurm.run("sbatch", *options, "--wrap", "sleep infinity").strip()


def test_no_pods_are_lost_duplicated_or_leaked_after_random_kills(story: Story, kills: int) -> None:
    inject_random_faults(story.faults(), story.hanging, story.random, kills, story.between)
    story.finish_traffic()
    # The next job deletes the remainders of killed jobs after ten minutes, and of submissions after an hour.
    for file in (*story.pilot_files(), *(story.slurm.root / "tmp").glob("*berth-*")):
        os.utime(file, (0, 0))
    until(lambda: sorted(story.slurm.queue()) == sorted(FOREIGN), PATIENCE, story.describe)
    story.traffic.submit()
    story.finish_traffic()
    story.traffic.check()

    until(story.is_empty, PATIENCE, story.describe)
    until(lambda: not live_rows(story.berth), PATIENCE, lambda: live_rows(story.berth))
    assert story.pilot_files() == []
    for name, job in story.foreign.items():
        shown = story.slurm.run("scontrol", "show", "job", job)
        assert f"JobName={name}" in shown
        assert "JobState=RUNNING" in shown
        assert "Restarts=0" in shown


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
