"""A Berth pool on a Slurm cluster of this machine."""

import sys
from collections.abc import Sequence
from typing import Any

import yaml

from tests.contracts.slurm.cluster import SlurmCluster
from tests.journeys.command import Terminal

GPUS = 2  # number of GPUs of each node
ROLE = {"gpu": GPUS, "cpu": 0.1, "memory_mib": 64}  # this role needs a whole node


def installation_settings(slurm: SlurmCluster, port: int) -> dict[str, str]:
    """Return the settings of an installation on a machine with Slurm's programs."""
    return {
        **slurm.env, "BERTH_PUBLIC_URL": f"http://127.0.0.1:{port}", "BERTH_PLAIN_HTTP": "1",
        "BERTH_INSTALLATION": "journey",
    }  # fmt: skip


def provider_settings(slurm: SlurmCluster, **more: Any) -> str:
    """Return settings that give each Slurm node on this machine its own address."""
    number = slurm.root.stat().st_ino % 200 + 20
    setup = [
        f"export BERTH_NODE_ADDRESS=127.{number}.0.$((${{SLURMD_NODENAME#n}} + 1))",
        f"export BERTH_NODE_PYTHON={sys.executable}",
        f"export TMPDIR={slurm.root}/tmp",
        "export BERTH_NODE_START_SECONDS=540",  # Ray starts slowly on a busy machine
    ]
    values = {"partition": "gpu", "directory": str(slurm.root / "shared"), "setup": setup, **more}
    return yaml.safe_dump(values, default_flow_style=True, width=10_000).strip()


def create_pool(admin: Terminal, settings: str, *more: str, options: Sequence[str] = ()) -> None:
    """Create a pool of up to two nodes, with quotas of one node each for vision and ads."""
    shape = ["--gpus-per-node", str(GPUS), "--cpu", "2", "--memory", "2048"]
    fast = ["reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=5", "boot_timeout=600", *more]
    sets = [part for value in fast for part in ("--set", value)]
    admin.berth(
        "pool", "create", "hpc", "--provider", "slurm", "--nodes", "0:2", *shape, *sets, *options,
        "--set", f"provider_settings={settings}",
    )  # fmt: skip
    owners = (["research", "--department"], ["product", "--department"], ["vision"], ["ads"])
    for owner in owners:
        admin.berth("quota", "set", *owner, "--pool", "hpc", "--gpu", str(GPUS))
