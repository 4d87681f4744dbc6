"""Build a pool's environment from its plugins, and store the plugins' secrets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.joining.sealed import UnsealError, seal, unseal
from pools.models import Environment, NodePool, PluginSecret
from pools.plugins import Cluster, Image, Operation, Plugin, PluginError, bootstrap_all, transform_all
from pools.plugins.checks import environment_problems, image_problems
from pools.plugins.declared import DeclaredPlugin, build_image, parse_plugins
from pools.plugins.script import bootstrap_script, compute_digest, phase_names
from pools.providers.hardware import detect_local_machine
from pools.runtimes.ray.scripts import RAY_VERSION

SecretKey = tuple[str, str]  # plugin name and parameter name
REBUILD_FIELDS = frozenset({"plugins", "environment", "provider", "runtime", "gpus_per_node", "gpu_model"})
AMD_MODELS = re.compile(r"(AMD|MI ?\d|Instinct|Radeon)", re.IGNORECASE)


@dataclass(frozen=True)
class PluginChanges:
    """Plugins to set, with their secrets, or None to keep the current plugins."""

    plugins: tuple[DeclaredPlugin, ...] | None = None


def split_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], PluginChanges]:
    """Separate the plugins and their secrets from the values of pool columns. Raises Invalid."""
    columns = dict(values)
    for name, empty in (("plugins", []), ("environment", {})):
        if name in columns and columns[name] is None:
            columns[name] = empty
    if "plugins" not in columns:
        return columns, PluginChanges()
    declared, problems = parse_plugins(columns["plugins"])
    if problems:
        raise Invalid(_prefix_paths("plugins", problems))
    columns["plugins"] = [{"name": plugin.name, "parameters": dict(plugin.parameters)} for plugin in declared]
    return columns, PluginChanges(declared)


def merge_environment(pool: NodePool, values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the requested environment into the pool's current one, and return the result. Raises Invalid."""
    if "environment" not in values:
        return dict(values)
    if problems := tuple(environment_problems(values["environment"])):
        raise Invalid(_prefix_paths("environment", problems))
    merged = {**pool.environment, **values["environment"]}
    return {**values, "environment": {name: value for name, value in merged.items() if value}}


def build(pool: NodePool, changes: PluginChanges, *, at: datetime) -> None:
    """Set the plugins, secrets and environment of a pool without saving it.

    The caller must hold the lock on the pool's row.
    """
    if changes.plugins is not None:
        _store_secrets(pool, changes.plugins, at)
    set_times = {(row.plugin, row.parameter): row.set_at for row in PluginSecret.objects.filter(pool=pool)}
    if changes.plugins is not None:
        pool.plugins = [_replace_secrets_with_set_times(entry, set_times) for entry in pool.plugins]
    pool.built_environment = _build_environment(pool, set_times, Cluster(
        pool.name, node_count=max(pool.nodes_desired, 1), gpus_per_node=pool.gpus_per_node,
        gpu_model=pool.gpu_model, cuda=_has_cuda(pool),
    ), at)  # fmt: skip


def environment_secrets(pool: NodePool, environment: Environment | None) -> dict[str, str]:
    """Return the environment's secret values, keyed by variable. Raises UnsealError if decryption fails."""
    return {row.variable: unseal(row.sealed) for row in plugin_secrets(pool, environment)}


def plugin_secrets(pool: NodePool, environment: Environment | None) -> list[PluginSecret]:
    """Return the pool's plugin secrets that processes of the environment receive."""
    names = environment.image["secrets"] if environment else ()
    return list(PluginSecret.objects.filter(pool=pool, variable__in=names)) if names else []


def delete_unused_environments(*, before: datetime) -> int:
    """Delete unused environments that are older than `before`. Return their number."""
    used = NodePool.objects.exclude(built_environment=None).values("built_environment")
    unused = Environment.objects.filter(created_at__lt=before, nodes=None).exclude(pk__in=used)
    return unused.delete()[0]


def _build_environment(
    pool: NodePool, secrets: Mapping[SecretKey, datetime], cluster: Cluster, at: datetime
) -> Environment | None:
    if not pool.plugins and not pool.environment:
        return None
    image, operations = _compose(pool, secrets, cluster)
    environment, _ = Environment.objects.get_or_create(
        digest=compute_digest(image, operations),
        defaults={
            "image": image.to_dict(), "script": bootstrap_script(image, operations), "created_at": at,
            "phases": list(phase_names(image, operations)),
        },
    )  # fmt: skip
    return environment


def _compose(
    pool: NodePool, secrets: Mapping[SecretKey, datetime], cluster: Cluster
) -> tuple[Image, tuple[Operation, ...]]:
    declared = build_image(pool.environment)
    if problems := tuple(image_problems(declared)):
        raise Invalid(_prefix_paths("environment", problems))
    plugins = _load_plugins(pool.plugins, secrets)
    try:
        image = transform_all(plugins, declared.with_pip(*_worker_packages(pool)), cluster)
        operations = bootstrap_all(plugins, cluster)
    except PluginError as error:
        raise Invalid([Problem("plugins", str(error))]) from error
    if problems := tuple(image_problems(image)):
        raise Invalid(_prefix_paths("plugins: image", problems))
    return image, operations


def _worker_packages(pool: NodePool) -> list[str]:
    ray = [f"ray[default]=={RAY_VERSION}"] if pool.runtime == NodePool.Runtime.RAY else []
    return [f"cloudpickle=={version('cloudpickle')}", *ray]


def _has_cuda(pool: NodePool) -> bool:
    """Return whether programs on the pool's nodes can use NVIDIA GPUs, not counting simulated ones."""
    if not pool.gpus_per_node or pool.provider == NodePool.Provider.FAKE:
        return False
    if pool.provider == NodePool.Provider.LOCAL:
        return not settings.BERTH_DECLARED_GPUS and bool(detect_local_machine().devices)
    return not AMD_MODELS.match(pool.gpu_model)


def _load_plugins(
    entries: Sequence[Mapping[str, Any]], secrets: Mapping[SecretKey, datetime]
) -> list[Plugin]:
    instances, problems = [], []
    for index, entry in enumerate(entries):
        name = entry["name"]
        declared = DeclaredPlugin(name, entry["parameters"])
        try:
            instances.append(
                declared.build_plugin([parameter for plugin, parameter in secrets if plugin == name])
            )
        except KeyError:
            problems.append(Problem(f"plugins[{index}].name", "is no longer installed", name))
        except PluginError as error:
            problems.append(Problem(f"plugins[{index}].parameters", str(error)))
    if problems:
        raise Invalid(problems)
    return instances


def _store_secrets(pool: NodePool, plugins: Sequence[DeclaredPlugin], at: datetime) -> None:
    """Store new secrets of plugins. Delete secrets that are null or belong to removed plugins."""
    PluginSecret.objects.filter(pool=pool).exclude(plugin__in=[plugin.name for plugin in plugins]).delete()
    for plugin in plugins:
        for parameter, secret in plugin.secrets.items():
            key: dict[str, Any] = {"pool": pool, "plugin": plugin.name, "parameter": parameter}
            if secret is None:
                PluginSecret.objects.filter(**key).delete()
            else:
                before = PluginSecret.objects.filter(**key).first()
                values = {
                    "variable": plugin.secret_variable(parameter), "sealed": seal(secret), "set_at": at,
                    "version": 1 if before is None else before.version + _has_changed(before, secret),
                }  # fmt: skip
                PluginSecret.objects.update_or_create(**key, defaults=values)


def _has_changed(row: PluginSecret, value: str) -> bool:
    try:
        return unseal(row.sealed) != value
    except UnsealError:
        return True


def _replace_secrets_with_set_times(
    entry: Mapping[str, Any], set_times: Mapping[SecretKey, datetime]
) -> dict[str, Any]:
    """Replace a plugin's secrets with the times when they were set."""
    times = {
        parameter: at.isoformat() for (plugin, parameter), at in set_times.items() if plugin == entry["name"]
    }
    return {"name": entry["name"], "parameters": entry["parameters"], "secrets_set": times}


def _prefix_paths(path: str, problems: Sequence[Problem]) -> list[Problem]:
    def add_prefix(inner: str) -> str:
        return f"{path}{inner}" if inner.startswith("[") or not inner else f"{path}.{inner}"

    return [replace(problem, path=add_prefix(problem.path)) for problem in problems]
