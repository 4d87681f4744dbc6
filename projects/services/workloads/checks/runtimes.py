"""Check a document against its pools' runtimes and policies, and warn about unenforced limits."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from pools.engine.pod_limits import limits_in_api_units, resolve_limits
from pools.image_support import image_rejection_reason
from pools.models import NodePool
from pools.runtimes.capabilities import runtime_capabilities
from projects.services.workloads.submission_view import SubmissionView

NO_IMAGE = "no image; the pool's plugins and environment then provide what the command needs"
IMAGE_COLUMNS = ("name", "runtime", "image_policy", "built_environment_id")
POOLS_SHOWN = 5

PoolRows = Mapping[str, NodePool]


def pools_for_image(spec: WorkloadSpec, pools: Sequence[str], rows: PoolRows) -> list[str]:
    """Return the pools in `rows` that accept the workload and its image.

    Raises Invalid if there is none, or if the document lists a pool that rejects it.
    """
    rejections = _image_rejections(spec, pools, rows)
    accepting = [name for name in pools if name not in rejections]
    if not accepting:
        raise Invalid([_image_problem(spec, rejections, rows)])
    rejecting = [(index, name) for index, name in enumerate(spec.pools) if name in rejections]
    if rejecting:
        allowed = ", ".join(accepting)
        raise Invalid(
            Problem(f"pools[{index}]", f"cannot be used: {rejections[name]}", format_value(name), allowed)
            for index, name in rejecting
        )
    return accepting


def check_image(spec: WorkloadSpec) -> None:
    """Raise Invalid if no pool can run the image of an unsubmitted document.

    Pools that do not exist are ignored.
    """
    rows = {pool.name: pool for pool in NodePool.objects.only(*IMAGE_COLUMNS).order_by("name")}
    pools = [name for name in rows if name in spec.pools] or list(rows)
    if pools:
        pools_for_image(spec.model_copy(update={"pools": ()}), pools, rows)


def _image_rejections(spec: WorkloadSpec, names: Iterable[str], rows: PoolRows) -> dict[str, str]:
    reasons = {name: image_rejection_reason(rows[name], spec.image) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def _image_problem(spec: WorkloadSpec, rejections: Mapping[str, str], rows: PoolRows) -> Problem:
    reasons = "; ".join([*rejections.values()][:POOLS_SHOWN])
    more = f"; and {len(rejections) - POOLS_SHOWN} more" if len(rejections) > POOLS_SHOWN else ""
    rejected = _image_rejections(spec, rows, rows)
    accepting = [name for name in rows if name not in rejected]
    message, allowed = ("is required", "an image") if spec.image is None else ("cannot be used", NO_IMAGE)
    if accepting:
        allowed = f"one of the pools {', '.join(accepting)}, or {allowed}"
    received = "" if spec.image is None else format_value(spec.image)
    return Problem("image", f"{message}: {reasons}{more}", received, allowed)


def limit_warnings(view: SubmissionView, spec: WorkloadSpec, pools: Sequence[str]) -> list[str]:
    """Return warnings about limits that some pools do not enforce, or that prevent pods from
    starting there.
    """
    roles = [role.name for role in spec.all_roles if role.limit.cpu or role.limit.memory_mib]
    if not roles:
        return []
    subject = f"role {roles[0]}" if len(roles) == 1 else f"roles {', '.join(roles)}"
    warnings = []
    if unenforced := [name for name in pools if not _enforces_limits(view.pools[name])]:
        effect = "they count for placement, but a pod can use more than its limit"
        warnings.append(
            f"The CPU and memory limits of {subject} are not enforced on {_pool_names(unenforced)}: {effect}."
        )
    if rejecting := sorted(view.pools_that_reject_limits.intersection(pools)):
        warnings.append(
            f"Pods of {subject} fail to start on nodes of {_pool_names(rejecting)} that cannot enforce "
            "limits. Remove the limits, or choose another pool."
        )
    return warnings


def describe_limits(spec: WorkloadSpec, pools: Sequence[str]) -> list[dict[str, Any]]:
    """Return the limits of each role's pods in each pool, in document order."""
    rows = NodePool.objects.filter(name__in=pools).order_by("name").values_list("name", "default_limits")
    defaults = dict(rows)
    return [
        {
            "pool": pool,
            "role": role.name,
            **limits_in_api_units(resolve_limits(role, defaults[pool]).to_pod_columns()),
        }
        for role in spec.all_roles
        for pool in pools
        if pool in defaults
    ]


def _enforces_limits(pool: NodePool) -> bool:
    return runtime_capabilities(pool.runtime).enforces_limits


def _pool_names(pools: Sequence[str]) -> str:
    if len(pools) == 1:
        return f"the pool {pools[0]}"
    more = f" and {len(pools) - POOLS_SHOWN} more" if len(pools) > POOLS_SHOWN else ""
    return f"the pools {', '.join(pools[:POOLS_SHOWN])}{more}"
