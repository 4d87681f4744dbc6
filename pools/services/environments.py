"""Build a pool's environment from its declaration, and store plugin secrets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.joining.sealed import seal, unseal
from pools.models import Environment, NodePool, PoolSecret
from pools.plugins import Cluster, Image, Operation, Plugin, PluginError, bootstrap_all, transform_all
from pools.plugins.checks import problems_of_declared, problems_of_image
from pools.plugins.declared import Declared, image_of, read_declared
from pools.plugins.script import bootstrap_script, digest_of, phases_of
from pools.providers.hardware import this_machine
from pools.runtimes.ray.scripts import RAY

Key = tuple[str, str]  # plugin, parameter
REBUILT_FOR = frozenset({"plugins", "environment", "provider", "runtime", "gpus_per_node", "gpu_model"})
AMD = re.compile(r"(AMD|MI ?\d|Instinct|Radeon)", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What people asked for now. `plugins` is None where they left it as it is."""

    plugins: tuple[Declared, ...] | None = None


def take_apart(values: Mapping[str, Any]) -> tuple[dict[str, Any], Wanted]:
    """The values without secrets, as columns hold them, and the plugins with theirs."""
    given = dict(values)
    for name, empty in (("plugins", []), ("environment", {})):
        if name in given and given[name] is None:
            given[name] = empty
    if "plugins" not in given:
        return given, Wanted()
    declared, problems = read_declared(given["plugins"])
    if problems:
        raise Invalid(_below("plugins", problems))
    given["plugins"] = [{"name": each.name, "parameters": dict(each.parameters)} for each in declared]
    return given, Wanted(declared)


def lay_over(pool: NodePool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of an environment, what is not named stays."""
    if "environment" not in given:
        return dict(given)
    if problems := tuple(problems_of_declared(given["environment"])):
        raise Invalid(_below("environment", problems))
    merged = {**pool.environment, **given["environment"]}
    return {**given, "environment": {name: value for name, value in merged.items() if value}}


def build(pool: NodePool, wanted: Wanted, *, at: datetime) -> None:
    """Settle the row's plugins, secrets and environment. The pool is stored already, and locked."""
    if wanted.plugins is not None:
        _keep_secrets(pool, wanted.plugins, at)
    when = {(row.plugin, row.parameter): row.set_at for row in PoolSecret.objects.filter(pool=pool)}
    if wanted.plugins is not None:
        pool.plugins = [_noted(each, when) for each in pool.plugins]
    pool.built_environment = _environment(pool, when, Cluster(
        pool.name, node_count=max(pool.nodes_desired, 1), gpus_per_node=pool.gpus_per_node,
        gpu_model=pool.gpu_model, cuda=_has_cuda(pool),
    ), at)  # fmt: skip


def secrets_for(pool: NodePool, environment: Environment | None) -> dict[str, str]:
    """Values by variable, of those that the environment names. Unopened: the key is another one now."""
    names = environment.image["secrets"] if environment else ()
    rows = PoolSecret.objects.filter(pool=pool, variable__in=names) if names else ()
    return {row.variable: unseal(row.sealed) for row in rows}


def forget_unused(*, before: datetime) -> int:
    """Environments that no pool wants and no node has, and that have been so for a while."""
    used = NodePool.objects.exclude(built_environment=None).values("built_environment")
    unused = Environment.objects.filter(created_at__lt=before, nodes=None).exclude(pk__in=used)
    return unused.delete()[0]


def _environment(
    pool: NodePool, secrets: Mapping[Key, datetime], cluster: Cluster, at: datetime
) -> Environment | None:
    if not pool.plugins and not pool.environment:
        return None
    image, operations = _composed(pool, secrets, cluster)
    found, _ = Environment.objects.get_or_create(
        digest=digest_of(image, operations),
        defaults={
            "image": image.to_dict(), "script": bootstrap_script(image, operations), "created_at": at,
            "phases": list(phases_of(image, operations)),
        },
    )  # fmt: skip
    return found


def _composed(
    pool: NodePool, secrets: Mapping[Key, datetime], cluster: Cluster
) -> tuple[Image, tuple[Operation, ...]]:
    declared = image_of(pool.environment)
    if problems := tuple(problems_of_image(declared)):
        raise Invalid(_below("environment", problems))
    plugins = _plugins(pool.plugins, secrets)
    try:
        image = transform_all(plugins, declared.with_pip(*_needed(pool)), cluster)
        operations = bootstrap_all(plugins, cluster)
    except PluginError as error:
        raise Invalid([Problem("plugins", str(error))]) from error
    if problems := tuple(problems_of_image(image)):
        raise Invalid(_below("plugins: image", problems))
    return image, operations


def _needed(pool: NodePool) -> list[str]:
    """What workers read functions with, and what they are reached by."""
    ray = [f"ray[default]=={RAY}"] if pool.runtime == NodePool.Runtime.RAY else []
    return [f"cloudpickle=={version('cloudpickle')}", *ray]


def _has_cuda(pool: NodePool) -> bool:
    """Of this machine we know; GPUs that are played or only declared compute nothing."""
    if not pool.gpus_per_node or pool.provider == NodePool.Provider.FAKE:
        return False
    if pool.provider == NodePool.Provider.LOCAL:
        return bool(this_machine().devices)
    return not AMD.match(pool.gpu_model)


def _plugins(entries: Sequence[Mapping[str, Any]], secrets: Mapping[Key, datetime]) -> list[Plugin]:
    made, problems = [], []
    for index, entry in enumerate(entries):
        name = entry["name"]
        declared = Declared(name, entry["parameters"])
        try:
            made.append(declared.plugin([parameter for plugin, parameter in secrets if plugin == name]))
        except KeyError:
            problems.append(Problem(f"plugins[{index}].name", "is no longer installed here", name))
        except PluginError as error:
            problems.append(Problem(f"plugins[{index}].parameters", str(error)))
    if problems:
        raise Invalid(problems)
    return made


def _keep_secrets(pool: NodePool, plugins: Sequence[Declared], at: datetime) -> None:
    """What is given replaces, null forgets, what is left out stays; without its plugin none stays."""
    PoolSecret.objects.filter(pool=pool).exclude(plugin__in=[each.name for each in plugins]).delete()
    for each in plugins:
        for parameter, secret in each.secrets.items():
            key: dict[str, Any] = {"pool": pool, "plugin": each.name, "parameter": parameter}
            if secret is None:
                PoolSecret.objects.filter(**key).delete()
            else:
                values = {"variable": each.variable_of(parameter), "sealed": seal(secret), "set_at": at}
                PoolSecret.objects.update_or_create(**key, defaults=values)


def _noted(entry: Mapping[str, Any], when: Mapping[Key, datetime]) -> dict[str, Any]:
    """With the secrets that are set, and since when: all that anybody is ever told of them."""
    noted = {parameter: at.isoformat() for (plugin, parameter), at in when.items() if plugin == entry["name"]}
    return {"name": entry["name"], "parameters": entry["parameters"], "secrets_set": noted}


def _below(path: str, problems: Sequence[Problem]) -> list[Problem]:
    def placed(inner: str) -> str:
        return f"{path}{inner}" if inner.startswith("[") or not inner else f"{path}.{inner}"

    return [replace(problem, path=placed(problem.path)) for problem in problems]
