"""GPU models of pools. All pools in a quota group must have the same model."""

from collections.abc import Iterable, Iterator, Mapping

from berth.core.problems import Problem, format_value
from pools.models import Node, NodePool
from pools.models.node import HOSTING


def gpu_models(pool: NodePool) -> frozenset[str]:
    """Return the GPU models in the pool's settings and on its nodes. Unknown models are omitted."""
    nodes = Node.objects.filter(pool=pool, state__in=HOSTING, gpus__gt=0)
    return frozenset({*nodes.values_list("gpu_model", flat=True).distinct(), pool.gpu_model} - {""})


def differing_models(pools: Iterable[NodePool]) -> Mapping[str, frozenset[str]]:
    """Return the known GPU models of each pool. Return an empty mapping if all of them are the same."""
    models = {pool.name: gpu_models(pool) for pool in pools}
    return {name: values for name, values in models.items() if values} if _has_several_models(models) else {}


def describe_models(models: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(f"{name}: {' and '.join(sorted(values))}" for name, values in models.items())


def group_model_problems(pool: NodePool) -> Iterator[Problem]:
    """Yield a problem if the pool's GPU model differs from that of its quota group."""
    if pool.quota_group is None:
        return
    others = NodePool.objects.filter(quota_group=pool.quota_group_id).exclude(pk=pool.pk).order_by("name")
    if differing_models([pool, *others]):
        allowed = describe_models({other.name: models for other in others if (models := gpu_models(other))})
        yield Problem(
            "gpu_model",
            f"differs from quota group {pool.quota_group.name}",
            format_value(pool.gpu_model),
            allowed or "the model of the pool's nodes",
        )


def _has_several_models(models: Mapping[str, frozenset[str]]) -> bool:
    return len(frozenset().union(*models.values())) > 1
