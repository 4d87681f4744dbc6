"""A pool on a fake Slurm cluster, with the reconciler."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pools.models import Node
from pools.models.node import NodeState
from pools.providers.base import LaunchRequest, Shape
from pools.providers.commands import Commands
from pools.providers.slurm.programs import SlurmPrograms
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.settings import slurm_settings
from tests.fakes.slurm import FakeSlurm
from tests.pools.stage import START, Stage, pool

VARIABLES = {"url": "https://berth.example.org", "pool": "small", "token": "s3cret", "certificates": ""}


def order(token: str = "0123456789ab", count: int = 2, start: int = 0, pool: str = "small") -> LaunchRequest:
    return LaunchRequest(pool, count, token, start, Shape(4000, 8192, gpus=2))


def slurm_provider(slurm: FakeSlurm, installation: str = "here", **settings: Any) -> SlurmProvider:
    values = slurm_settings({"partition": "gpu", "directory": str(slurm.root / "shared"), **settings})
    return SlurmProvider(
        values, SlurmPrograms(values, slurm.commands), installation, variables=lambda order: VARIABLES,
        now=lambda: START,
    )  # fmt: skip


@dataclass
class SlurmStage(Stage):
    """A stage whose provider is Slurm, with the stage's clock and kill points."""

    slurm: Any = None

    def join(self) -> None:
        """Make each running machine join, as its pilot job does."""
        Node.objects.filter(state__in=["requested", "booting"], queued=False).update(joined_at=self.now)

    def check(self) -> None:
        nodes = Node.objects.filter(pool=self.pool).exclude(state=NodeState.ENDED)
        assert len(self.slurm.queue()) == len(nodes) == self.nodes_desired


def use_commands(provider: SlurmProvider, commands: Commands) -> None:
    """Let the provider run Slurm's programs on another machine."""
    provider.client = SlurmPrograms(provider.settings, commands)


def slurm_stage(slurm: FakeSlurm, nodes: object = (0, 8), **settings: Any) -> SlurmStage:
    directory = str(slurm.root / "shared")
    slurm_pool = pool(
        nodes, provider="slurm", runtime="ray", provider_settings={"directory": directory, **settings}
    )
    stage = SlurmStage(slurm_pool, slurm=slurm)
    provider: Any = slurm_provider(slurm, **settings)
    provider._now = lambda: stage.now
    stage.provider = provider
    return stage


def make_slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm")
