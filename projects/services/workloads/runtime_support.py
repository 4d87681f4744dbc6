"""Check a workload document against its pools' runtimes, and warn about unenforced limits."""

from collections.abc import Mapping, Sequence

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from pools.models import Node, NodePool
from pools.models.node import HOSTING
from pools.runtimes.capabilities import Capabilities, runtime_capabilities

NO_IMAGE = "no image; the pool's plugins and environment then provide what the command needs"
POOLS_SHOWN = 5


def pools_for_image(spec: WorkloadSpec, pools: Sequence[str]) -> list[str]:
    """Return the pools whose runtime can run the workload's image, or all pools if it has no image.

    Raises Invalid if none of them can, or if the document lists a pool that cannot.
    """
    if spec.image is None:
        return list(pools)
    capabilities = _capabilities(pools)
    capable = [name for name in pools if capabilities[name].runs_images]
    if not capable:
        message = f"cannot be used: container images do not run on {_names(pools)}"
        raise Invalid([Problem("image", message, format_value(spec.image), _allowed_for_images())])
    incapable = [(index, name) for index, name in enumerate(spec.pools) if name not in capable]
    if incapable:
        message = "does not run container images, but the workload specifies one"
        raise Invalid([Problem(f"pools[{index}]", message, format_value(name), ", ".join(capable))
                       for index, name in incapable])  # fmt: skip
    return capable


def check_image(spec: WorkloadSpec) -> None:
    """Raise Invalid if no pool can run the image of an unsubmitted document, such as a template.

    Pools that do not exist are ignored.
    """
    pools_in_order = NodePool.objects.order_by("name").values_list("name", flat=True)
    pools = [name for name in pools_in_order if name in spec.pools] or list(pools_in_order)
    if pools:
        pools_for_image(spec.model_copy(update={"pools": ()}), pools)


def limit_warnings(spec: WorkloadSpec, pools: Sequence[str]) -> list[str]:
    """Return warnings about limits that some pools do not enforce or refuse; empty if all are enforced."""
    roles = [role.name for role in spec.all_roles if role.limit.cpu or role.limit.memory_mib]
    if not roles:
        return []
    capabilities = _capabilities(pools)
    subject = f"role {roles[0]}" if len(roles) == 1 else f"roles {', '.join(roles)}"
    warnings = []
    if unenforced := [name for name in pools if not capabilities[name].enforces_limits]:
        effect = "they count for placement, but a pod can use more than its limit"
        warnings.append(
            f"The CPU and memory limits of {subject} are not enforced on {_names(unenforced)}: {effect}."
        )
    if refusing := _pools_that_refuse_limits(pools):
        warnings.append(
            f"Pods of {subject} fail to start on nodes of {_names(refusing)} that cannot enforce limits. "
            "Remove the limits, or choose another pool."
        )
    return warnings


def _pools_that_refuse_limits(pools: Sequence[str]) -> list[str]:
    """Return the pools with a node whose agent has reported that it cannot enforce memory or CPU limits."""
    nodes = Node.objects.filter(pool__name__in=pools, state__in=HOSTING, isolation__isnull=False)
    reports = ((node.pool.name, node.isolation or {}) for node in nodes.select_related("pool"))
    refusing = {
        name
        for name, report in reports
        if not {"memory", "cpu"} <= set(report["limits"]) and not report["ignores_limits"]
    }
    return sorted(refusing)


def _capabilities(pools: Sequence[str]) -> Mapping[str, Capabilities]:
    """Return the capabilities by pool name. A pool that has been deleted has none."""
    rows = NodePool.objects.filter(name__in=pools).values_list("name", "runtime")
    return dict.fromkeys(pools, Capabilities()) | {
        name: runtime_capabilities(runtime) for name, runtime in rows
    }


def _allowed_for_images() -> str:
    rows = NodePool.objects.order_by("name").values_list("name", "runtime")
    capable = [name for name, runtime in rows if runtime_capabilities(runtime).runs_images]
    return f"one of the pools {', '.join(capable)}, or {NO_IMAGE}" if capable else NO_IMAGE


def _names(pools: Sequence[str]) -> str:
    if len(pools) == 1:
        return f"the pool {pools[0]}"
    more = f" and {len(pools) - POOLS_SHOWN} more" if len(pools) > POOLS_SHOWN else ""
    return f"the pools {', '.join(pools[:POOLS_SHOWN])}{more}"
