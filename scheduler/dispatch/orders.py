"""Build the order for one pod: its command, devices and environment.

Every pod is one rank with its own devices visible, so to its framework it is a node of its own:
LOCAL_RANK is 0, LOCAL_WORLD_SIZE 1, NODE_RANK the rank.
"""

from collections.abc import Sequence

from berth.core.amounts import MILLI
from berth.core.spec import WorkloadSpec, tree_of
from berth.core.spec.tree import smallest_gang
from pools.joining import secrets
from pools.joining.sealed import Unopened
from pools.runtimes.base import PodOrder
from pools.services.environments import secrets_for
from projects.models import Pod, Session
from scheduler.dispatch.ports import told_of_ports


def order_for(pod: Pod, spec: WorkloadSpec, world: Sequence[Pod]) -> PodOrder:
    """`world` are all pods of the run; the workload's rendezvous is known by now."""
    role = next(role for role in spec.all_roles if role.name == pod.role)
    return PodOrder(
        pod_id=str(pod.pk),
        name=pod.name,
        workspace=str(pod.workload_id),
        command=spec.argv_of(role),
        env={
            **_of_pool(pod),
            **spec.env_of(role),
            **_told(pod, spec, world),
            **_where_to_serve(pod),
            **told_of_ports(pod),
            **_told_in_a_session(pod),
        },
        working_dir=spec.working_dir,
        instance_id=pod.node.instance_id,
        devices=devices_of(pod),
        grace_seconds=spec.grace_period_seconds,
        device_milli=pod.allocation.gpu_milli,
        environment=pod.node.environment_id or "",
        start_in=spec.workspace_of(role) or "",
    )


def _of_pool(pod: Pod) -> dict[str, str]:
    """What is set for everything that runs in the pool, with its secrets; a document may say otherwise."""
    environment = pod.node.environment
    if environment is None:
        return {}
    try:
        return {**environment.image["env"], **secrets_for(pod.node.pool, environment)}
    except Unopened as error:
        raise ValueError(f"a secret of a plugin of {pod.node.pool.name} is {error}") from error


def _first_of(world: Sequence[Pod], pod: Pod) -> Pod:
    """Rank 0, or who is nearest to it by now."""
    return min([*world, pod], key=lambda other: other.rank)


def devices_of(pod: Pod) -> tuple[str, ...]:
    """Physical ids; a node that names none has its devices by number."""
    names = pod.node.devices
    return tuple(str(names[i]) if i < len(names) else str(i) for i in pod.allocation.devices)


def _where_to_serve(pod: Pod) -> dict[str, str]:
    if pod.endpoint is None:
        return {}
    return {"BERTH_HOST": str(pod.endpoint["address"]), "BERTH_PORT": str(pod.endpoint["port"])}


def _told_in_a_session(pod: Pod) -> dict[str, str]:
    """Whom its worker calls, and the secret by which it is known; the secret is worked out, never stored."""
    session: Session | None = getattr(pod.workload, "session", None)
    if session is None:
        return {}
    return {"BERTH_URL": session.address, "BERTH_SESSION_SECRET": secrets.for_pod(str(pod.pk))}


def _told(pod: Pod, spec: WorkloadSpec, world: Sequence[Pod]) -> dict[str, str]:
    workload, held = pod.workload, pod.allocation
    place = workload.rendezvous or {}
    of_role = sum(other.role == pod.role for other in world)
    return {
        "RANK": str(pod.rank),
        "WORLD_SIZE": str(len(world)),  # of this moment: who runs already is told nothing when others join
        "BERTH_WORLD_MIN": str(smallest_gang(tree_of(spec))),
        "BERTH_WORLD_MAX": str(sum(role.maximum for role in spec.all_roles)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(pod.rank),
        "MASTER_ADDR": str(place["address"] or _first_of(world, pod).node.address),
        "MASTER_PORT": str(place["port"]),
        "BERTH_WORKLOAD": workload.name,
        "BERTH_WORKLOAD_ID": str(workload.pk),
        "BERTH_PROJECT": workload.project.name,
        "BERTH_ROLE": pod.role,
        "BERTH_INDEX": str(pod.index),
        "BERTH_ROLE_REPLICAS": str(of_role),
        "BERTH_RUN": str(pod.run),
        "BERTH_POD_ID": str(pod.pk),
        "BERTH_POOL": pod.node.pool.name,
        "BERTH_NODE": pod.node.name,
        "BERTH_NODE_ADDRESS": pod.node.address,
        "BERTH_RUNTIME": pod.node.pool.runtime,
        "BERTH_GANG_SECRET": secrets.for_gang(str(pod.workload_id), pod.run),
        "BERTH_CPUS": f"{held.cpu_milli / MILLI:g}",
        "BERTH_GPUS": f"{held.gpu_milli_total / MILLI:g}",
        "BERTH_GPU_FRACTION": f"{held.gpu_milli / MILLI:g}",
        "BERTH_GRACE_SECONDS": str(spec.grace_period_seconds),
    }
