"""Options for `client.session(...)`."""

import base64
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import cloudpickle

from berth.client.errors import NotPicklable
from berth.client.models.pools import NodePool
from berth.client.sessions.plugins import resolve_plugins
from berth.client.sessions.unpicklable import unpicklable_part
from berth.worker.plugins import load_pool_plugins, merge_plugins
from pools.plugins.base import Plugin
from pools.plugins.facts import Cluster

Nodes = int | tuple[int, int]
Executor = Literal["process", "thread"]
WORKER_HOOKS = ("transform", "bootstrap", "decorate", "around_app", "around_process")


class SessionOptions(TypedDict, total=False):
    """Session options. `gpus`, `cpus` and `memory_mib` are per node.

    A node runs `concurrency` calls at a time, in separate processes (`executor="process"`) or in threads. If
    a node is lost, its calls are repeated, up to `max_attempts` attempts each. A session ends after
    `idle_timeout` seconds without calls. `image` must contain a `python` of the client's version; Kubernetes
    pools require an image.
    """

    gpus: float
    cpus: float
    memory_mib: int
    plugins: Iterable[Plugin | str]
    executor: Executor
    concurrency: int
    name: str
    project: str
    priority: int | str | None
    preemptible: bool | None
    max_attempts: int
    idle_timeout: int
    max_runtime: int | None
    env: Mapping[str, str]
    secrets: Sequence[Mapping[str, str]]
    labels: Mapping[str, str]
    image: str


@dataclass(frozen=True, slots=True)
class Options:
    pools: tuple[str, ...]
    nodes: Nodes = 1
    gpus: float = 0
    cpus: float = 1
    memory_mib: int = 0
    plugins: tuple[Plugin, ...] = ()
    executor: Executor = "process"
    concurrency: int = 1
    name: str = ""
    project: str = ""
    priority: int | str | None = None
    preemptible: bool | None = None
    max_attempts: int = 3
    idle_timeout: int = 600
    max_runtime: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[Mapping[str, str]] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str = ""

    @property
    def min_nodes(self) -> int:
        """Minimum number of nodes that the session needs to start."""
        return self.nodes if isinstance(self.nodes, int) else self.nodes[0]

    def body(self) -> dict[str, Any]:
        """Return the REST body. Raises NotPicklable for plugins that cannot be sent."""
        node: dict[str, Any] = {"gpu": self.gpus, "cpu": self.cpus, "memory_mib": self.memory_mib}
        if isinstance(self.nodes, int):
            node["replicas"] = self.nodes
        else:
            node["min"], node["max"] = self.nodes
        values = {
            "name": self.name or f"session-{uuid.uuid4().hex[:8]}",
            "project": self.project or None,
            "pools": list(self.pools),
            "node": node,
            "priority": self.priority,
            "preemptible": self.preemptible,
            "max_runtime": self.max_runtime,
            "env": dict(self.env),
            "secrets": [dict(use) for use in self.secrets] or None,
            "labels": dict(self.labels),
            "image": self.image or None,
            "executor": self.executor,
            "slots": self.concurrency,
            "max_attempts": self.max_attempts,
            "idle_timeout": self.idle_timeout,
            "python": sys.version.split()[0],
            "cloudpickle": cloudpickle.__version__,
            "setup": base64.b64encode(_pickle_worker_hooks(self.plugins)).decode(),
        }
        return {name: value for name, value in values.items() if value is not None}


def build_options(pool: str | Sequence[str], nodes: Nodes, project: str, options: SessionOptions) -> Options:
    """Build the options of a session. Raises SessionError for invalid plugins."""
    settings: dict[str, Any] = {name: value for name, value in options.items() if name != "plugins"}
    settings["project"] = options.get("project") or project
    return Options(
        pools=(pool,) if isinstance(pool, str) else tuple(pool),
        nodes=nodes,
        plugins=resolve_plugins(options.get("plugins", ())),
        **settings,
    )


@dataclass(frozen=True, slots=True)
class PluginContext:
    """Context for plugin hooks that run in the client: details of the pool, and all plugins."""

    cluster: Cluster
    plugins: tuple[Plugin, ...]


def plugin_context(options: Options, pool: NodePool | None) -> PluginContext:
    """Return the plugin context of a session. `pool` is None if the session has several pools."""
    if pool is None:
        cluster = Cluster(name=", ".join(options.pools), node_count=options.min_nodes)
        return PluginContext(cluster, options.plugins)
    cluster = Cluster(
        name=pool.name,
        node_count=options.min_nodes,
        gpus_per_node=pool.gpus_per_node,
        gpu_model=pool.gpu_model,
    )
    pool_plugins = load_pool_plugins(plugin.to_dict() for plugin in pool.plugins)
    return PluginContext(cluster, merge_plugins(pool_plugins, options.plugins))


def _pickle_worker_hooks(plugins: Sequence[Plugin]) -> bytes:
    """Pickle the hooks in two parts. The second part may import what the first part installs."""
    if not plugins:
        return b""
    parts = (
        tuple(Plugin(plugin.name, plugin.transform, plugin.bootstrap) for plugin in plugins),
        tuple(replace(plugin, transform=None, bootstrap=None, around_client=None) for plugin in plugins),
    )
    try:
        data: bytes = cloudpickle.dumps(tuple(cloudpickle.dumps(part) for part in parts))
    except Exception as error:
        for plugin in plugins:
            for hook in WORKER_HOOKS:
                where, part = unpicklable_part(getattr(plugin, hook), f"plugin {plugin.name}, {hook}")
                if part is not getattr(plugin, hook):
                    kind = type(part).__qualname__
                    raise NotPicklable(
                        f"{where} cannot be pickled: it is a {kind}. Create it inside the function instead."
                    ) from error
        raise NotPicklable(f"The plugins cannot be pickled: {error}") from error
    return data
