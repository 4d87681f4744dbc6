"""The first chapter of the admin guide, followed on a new installation."""

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from berth.client.models.workloads import Workload
from tests.journeys.command import Terminal, log_in
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import until

HEADING = "First pool and first reclaimed gang"
LONG = 900.0  # nodes take minutes to boot on a busy machine
# The program of both gangs. It counts steps, saves the count when it is stopped, and continues from it.
TRAIN = """
cd "$BERTH_WORKSPACE"
step=$(cat step-$RANK 2>/dev/null || echo 0)
echo "starts at $step with $WORLD_SIZE workers on $BERTH_NODE, GPUs $CUDA_VISIBLE_DEVICES"
trap 'echo "notice at $step"' USR1
trap 'echo $step > step-$RANK; echo "saved $step"; exit 0' TERM
while [ ! -e finish ]; do step=$((step + 1)); sleep 0.1; done
"""


@dataclass
class FirstChapter:
    """The steps of the chapter on the machines of a test.

    `smaller` maps texts of the guide to those for smaller machines. Gangs are submitted with the additional
    `options`. If `image` is set, they run in this image instead of sending code. `workspaces` is the
    directory of all workspaces. `describe` describes the pool's machines.
    """

    admin: Terminal
    place: Path
    workspaces: Path
    smaller: Mapping[str, str]
    options: str
    describe: Callable[[], str]
    image: str = ""
    users: dict[str, Terminal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pools, self._projects, self._training, self._ranking = guide_examples(HEADING, "admins")
        self._pools = textwrap.dedent(pools).splitlines()
        (self.place / "code").mkdir()
        for name in ("train.sh", "rank.sh"):
            (self.place / "code" / name).write_text(TRAIN)

    def pool_command(self, provider: str, *options: str) -> str:
        """Return the guide's command that creates a pool with this provider."""
        [line] = [line for line in self._pools if f"--provider {provider} " in line]
        return f"{self._shrink(line)} {shlex.join(options)}"

    def create_projects(self) -> None:
        """Create departments, projects, users and quotas, and sign the users in."""
        assert self.admin.json("project", "list") == []
        for user in ("nora", "omar"):
            (self.place / f"{user}.password").write_text(f"correct horse {user}\n")
        run_as_written(self.admin, self._shrink(self._projects), self.place)
        for user in ("nora", "omar"):
            password = (self.place / f"{user}.password").read_text().strip()
            self.users[user] = log_in(self.admin.address, user, password, self.place / user)

    def submit_training(self) -> Workload:
        """Submit the gang of genomics, which has no quota, and wait until it runs on borrowed GPUs."""
        self._submit("nora", self._training)
        self.reach("training", "running")
        until(lambda: "starts at 0 with 2 workers on" in self.log(1), LONG, self.describe)
        return self.find("training")

    def submit_ranking(self) -> int:
        """Submit the gang of shop and wait until it runs.

        Return the number of steps that the first worker of the reclaimed gang has saved.
        """
        submit, _, shows = self._ranking.strip().partition("\n")
        self._submit("omar", submit)
        self.reach("ranking", "running")
        assert self.find("training").phase == "pending"
        assert self.find("training").preemptions == 1
        assert "ranking" in run_as_written(self.admin, self._shrink(shows), self.place)
        saved = until(lambda: re.search(r"saved (\d+)", self.log(1)), LONG, self.describe)
        assert int(saved[1]) > 0
        return int(saved[1])

    def resume_training(self, step: int) -> None:
        """End the gang of shop, and wait until the gang of genomics continues from its saved step."""
        self.finish("ranking")
        self.reach("training", "running")
        until(lambda: f"starts at {step} with 2 workers on" in self.log(2), LONG, self.describe)

    def finish(self, name: str) -> None:
        (self.workspaces / self.find(name).id / "finish").touch()
        self.reach(name, "completed")

    def find(self, name: str) -> Workload:
        return self.admin.client().workloads.find(name)

    def reach(self, name: str, phase: str) -> None:
        until(
            lambda: self.find(name).phase == phase, LONG,
            details=lambda: f"{self.find(name).message}\n{self.describe()}",
        )  # fmt: skip

    def log(self, run: int) -> str:
        """Return the output of the first worker of `training`."""
        chunk = self.admin.client().workloads.log(self.find("training").id, pod="worker-0", run=run)
        return chunk.data.decode()

    def _submit(self, user: str, example: str) -> None:
        line, command = self._shrink(example).strip().split(" -- ")
        if self.image:
            command = f'sh -c "$(cat {command.removeprefix("sh ")})"'
            line = line.replace("--code .", f"--image {self.image}")
        run_as_written(self.users[user], f"{line} {self.options} -- {command}", self.place / "code")

    def _shrink(self, example: str) -> str:
        example = textwrap.dedent(example)
        for text, replacement in self.smaller.items():
            example = example.replace(text, replacement)
        return example
