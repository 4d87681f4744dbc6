"""Connect the clock, providers and runtimes to their implementations."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings

from berth.core.clock import Clock, SystemClock
from berth.server.tracing.providers import trace_provider
from pools.environments.local import LocalEnvironments
from pools.environments.recipes import load_pending_recipes, load_recipe
from pools.joining import secrets
from pools.joining.pilot import pilot_shell_variables
from pools.joining.user_data import user_data
from pools.kubernetes.cluster import Clusters
from pools.kubernetes.files.store import CopyLimits
from pools.kubernetes.runtime import KubernetesRuntime
from pools.models import NodePool
from pools.providers.aws.clients import Clients
from pools.providers.aws.provider import AwsProvider
from pools.providers.aws.settings import aws_settings
from pools.providers.base import Provider
from pools.providers.commands import Commands, LocalCommands
from pools.providers.hardware import Machine, detect_local_machine
from pools.providers.kubernetes import KubernetesProvider
from pools.providers.local import LocalProvider
from pools.providers.prepared import PreparedNodes
from pools.providers.reachable import ReachableNodes
from pools.providers.slurm.client import SlurmClient
from pools.providers.slurm.programs import SlurmPrograms
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.versions import Api
from pools.providers.slurm.settings import slurm_settings
from pools.providers.ssh.commands import SshCommands
from pools.providers.ssh.maintenance import SshMaintenance
from pools.providers.ssh.provider import SshProvider
from pools.providers.ssh.task_runner import TaskRunner
from pools.providers.static import StaticProvider
from pools.runtimes.base import Runtime
from pools.runtimes.local import LocalRuntime
from pools.runtimes.ray.local_nodes import LocalRayNodes
from pools.runtimes.ray.runtime import RayRuntime
from pools.selectors import installation_name, pending_instances, ray_nodes
from pools.services.access.kubernetes import KubernetesAccess
from pools.services.access.slurm import slurm_server
from pools.services.ssh.keys import PoolKeys

T = TypeVar("T")
_slurm_versions: dict[str, Api] = {}  # API version of each slurmrestd, by URL


class UnavailableImplementation(LookupError):
    """Raised for a pool whose provider or runtime is not available in this installation."""


@dataclass(frozen=True)
class Wiring:
    clock: Clock
    providers: Mapping[str, Callable[[NodePool], Provider]]
    runtimes: Mapping[str, Runtime]
    changes: Mapping[str, Callable[[NodePool], datetime | None]] = field(default_factory=dict)

    def provider_for(self, pool: NodePool) -> Provider:
        provider = _lookup(self.providers, pool.provider, f"provider of pool {pool.name}")(pool)
        runtime = self.runtimes.get(pool.runtime)
        if isinstance(runtime, RayRuntime):
            provider = ReachableNodes(provider, runtime.unready_reasons, pending_instances)
        return trace_provider(provider, pool.provider)

    def instances_changed_at(self, pool: NodePool) -> datetime | None:
        """Return when the pool's provider last noticed a change in its instances, or None."""
        last_change = self.changes.get(pool.provider)
        return last_change(pool) if last_change is not None else None

    def runtime_for(self, pool: NodePool) -> Runtime:
        return _lookup(self.runtimes, pool.runtime, f"runtime of pool {pool.name}")


def load_wiring() -> Wiring:
    """Return this process's wiring of providers and runtimes.

    All processes share the files under BERTH_HOME.
    """
    return _build_wiring(str(settings.BERTH_FAKE_POOLS))


@cache
def _build_wiring(fakes: str) -> Wiring:
    home, clock = Path(settings.BERTH_HOME), SystemClock()
    local_provider = LocalProvider(home / "nodes", local_machine())
    static = StaticProvider(clock.now)
    upkeep = SshMaintenance(clock.now, installation_name, TaskRunner())
    raylets = add_environments(LocalRayNodes(local_provider, home / "raylets", secrets.cluster_secret))
    plain = add_environments(local_provider)
    clusters = Clusters(installation_name, now=clock.now)
    access = KubernetesAccess(clusters)
    kubernetes = KubernetesRuntime(home / "kubernetes", access.access_by_pool, _file_limits)
    clusters.set_callbacks(kubernetes.notify, kubernetes.record_deletion)
    wiring = Wiring(
        clock=clock,
        providers={
            NodePool.Provider.LOCAL.value: lambda pool: raylets if pool.runtime == "ray" else plain,
            NodePool.Provider.STATIC.value: lambda pool: static,
            NodePool.Provider.SSH.value: lambda pool: SshProvider(clock.now, upkeep, pool),
            NodePool.Provider.AWS.value: lambda pool: aws_provider(json.dumps(pool.provider_settings)),
            NodePool.Provider.KUBERNETES.value: lambda pool: KubernetesProvider(
                partial(access.access_for_pool, pool), partial(access.open, pool), clock.now
            ),
            NodePool.Provider.SLURM.value: lambda pool: SlurmProvider(
                slurm_settings(pool.provider_settings),
                slurm_client(pool, clock.now),
                installation_name(),
                variables=pilot_shell_variables,
                now=clock.now,
            ),
        },
        runtimes={
            NodePool.Runtime.LOCAL.value: LocalRuntime(home / "run"),
            NodePool.Runtime.RAY.value: RayRuntime(home / "ray", ray_nodes),
            NodePool.Runtime.KUBERNETES.value: kubernetes,
        },
        changes={NodePool.Provider.KUBERNETES.value: access.nodes_changed_at},
    )
    return _add_fakes(wiring, import_module(fakes)) if fakes else wiring


def _file_limits() -> CopyLimits:
    return CopyLimits(settings.BERTH_OUTPUTS_MIB * 2**20, settings.BERTH_CODE_FILES)


def _add_fakes(wiring: Wiring, module: Any) -> Wiring:
    provider, runtime = module.provider(), module.runtime(wiring.clock)
    return replace(
        wiring,
        providers={**wiring.providers, NodePool.Provider.FAKE.value: lambda pool: provider},
        runtimes={**wiring.runtimes, NodePool.Runtime.FAKE.value: runtime},
    )


def local_environments() -> LocalEnvironments:
    return LocalEnvironments(Path(settings.BERTH_HOME) / "environments")


def add_environments(provider: Provider) -> PreparedNodes:
    return PreparedNodes(provider, local_environments(), load_recipe, load_pending_recipes)


@lru_cache(maxsize=64)
def aws_provider(settings_json: str) -> AwsProvider:
    """Return one provider for all pools with the same settings, because creating an SDK client is slow."""
    settings_of_pool = aws_settings(json.loads(settings_json))
    return AwsProvider(
        settings_of_pool, Clients(settings_of_pool.region), installation_name(), user_data=user_data
    )


def slurm_client(pool: NodePool, now: Callable[[], datetime]) -> SlurmClient:
    """Return the client for slurmrestd, or for Slurm's programs on the login node or this machine."""
    values = slurm_settings(pool.provider_settings)
    if values.rest_url is not None:
        return SlurmRest(values, partial(slurm_server, pool), _slurm_versions, now=now)
    commands: Commands = LocalCommands()
    if (login := values.login) is not None:
        commands = SshCommands(
            f"the login node {login.address}",
            lambda: PoolKeys(pool, pool.unstored_ssh_keys).endpoint(login.to_dict()),
        )
    return SlurmPrograms(values, commands)


def local_machine() -> Machine:
    """Return this machine with its GPUs, or with simulated GPUs if BERTH_DECLARED_GPUS is set."""
    return detect_local_machine(settings.BERTH_DECLARED_GPUS)


def _lookup(implementations: Mapping[str, T], name: str, role: str) -> T:
    try:
        return implementations[name]
    except KeyError:
        raise UnavailableImplementation(
            f"the {role} {name!r} is not available in this installation"
        ) from None
