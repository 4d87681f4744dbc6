"""Build the spec that a runtime needs to start a pod: command, devices and environment.

Every pod is one rank and sees only its own devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth.core.spec import WorkloadSpec, build_tree
from berth.core.spec.roles import SecretUse
from berth.core.spec.tree import smallest_gang_size
from berth.core.values.amounts import MILLI
from pools.engine.pod_limits import LimitSource, resolve_limits
from pools.engine.volumes import rejection_reason, usable_volumes
from pools.joining import secrets
from pools.joining.sealed import UnsealError, unseal
from pools.joining.server import reachable_server_for_pods
from pools.providers.base import ProviderError
from pools.runtimes.base import PodSpec, VolumeMount
from pools.runtimes.capabilities import runtime_capabilities
from pools.runtimes.enclosure.levels import pod_uid
from projects.models import Pod, Session
from projects.models.workloads import LIVE_POD_STATES
from projects.services.secrets import MissingSecret, UnusableSecret
from scheduler.loop.dispatch.starts.images import NO_IMAGE, ReadyImage
from scheduler.loop.dispatch.starts.ports import port_env, port_secret_env
from scheduler.loop.dispatch.starts.secrets import SecretReader

# Kinds of workloads that get no additional pods while running.
FIXED_KINDS = ("training", "interactive")


def build_pod_spec(
    pod: Pod, spec: WorkloadSpec, gang: Sequence[Pod], image: ReadyImage, reader: SecretReader
) -> PodSpec:
    """Return the pod's spec.

    `gang` contains all pods of the run, whose rendezvous address must already be set.
    """
    # Each access to a related object through the pod would go through Django's descriptors.
    workload, node, allocation = pod.workload, pod.node, pod.allocation
    pool, environment = node.pool, node.environment
    role = next(role for role in spec.all_roles if role.name == pod.role)
    limits = pod.limits or resolve_limits(role, pool.default_limits).to_pod_columns()
    volumes = () if role.idle else _volume_mounts(pod, spec)
    declared = _declared_secrets(pod, spec.role_secrets(role), reader)
    capabilities = runtime_capabilities(pool.runtime)
    if role.idle and not capabilities.requires_images:
        image = NO_IMAGE
    return PodSpec(
        pod_id=str(pod.pk),
        name=pod.name,
        workspace=str(pod.workload_id),
        command=spec.role_argv(role),
        env={
            **(environment.image["env"] if environment else {}),
            **spec.role_env(role),
            **_gang_env(pod, spec, gang),
            **_endpoint_env(pod),
            **port_env(pod),
            **_session_env(pod),
            **_array_env(pod),
        },
        working_dir=spec.working_dir,
        instance_id=node.instance_id,
        devices=device_ids(pod),
        grace_seconds=spec.grace_period_seconds,
        device_milli=allocation.gpu_milli,
        environment=node.environment_id or "",
        start_in=spec.role_workspace(role) or "",
        project=workload.project.name,
        uid=pod_uid(workload.project_id),
        secret_env={
            **_plugin_secrets(pod, spec.role_env(role), reader),
            **declared.env,
            **_pod_secrets(pod, spec),
        },
        secret_files=declared.files,
        **_download_fields(pod, volumes, has_code=spec.code is not None and not role.idle),
        volumes=volumes,
        image=image.reference,
        image_pull_policy=spec.image_pull_policy,
        registry_auth=image.auth,
        pool=pool.name,
        cpu_milli=allocation.cpu_milli,
        memory_mib=allocation.memory_mib,
        address_env=_address_env(pod, gang) if capabilities.pods_have_addresses else (),
        cpu_limit_milli=limits["cpu_milli"],
        memory_limit_mib=limits["memory_mib"],
        workspace_limit_mib=pool.workspace_limit_mib or 0,
        optional_limits=tuple(
            name for name in ("memory", "cpu") if limits[f"{name}_source"] != LimitSource.DOCUMENT
        ),
        outputs=spec.outputs,
        keeps_files=spec.keep_failed_pod is not None,
    )


@dataclass(frozen=True)
class DeclaredSecrets:
    """Values of the secrets that a document declares, by variable and by file name."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


def _download_fields(pod: Pod, volumes: Sequence[VolumeMount], *, has_code: bool) -> dict[str, str]:
    """Return the URLs for downloading the pod's code and volumes.

    Raises ValueError if the code has expired or the node's pods cannot reach the server.
    """
    synced = next((volume.name for volume in volumes if volume.cache), "")
    if not has_code and not synced:
        return {}
    if has_code and pod.workload.code_id is None:
        raise ValueError("the workload's code is no longer stored. Resubmit the workload")
    try:
        server = reachable_server_for_pods(pod.node.pool.provider)
    except ProviderError as error:
        what = "the code" if has_code else f"the volume {synced}"
        raise ValueError(f"{what} cannot be downloaded: {error}") from error
    place = f"{server.url}/api/v1/pods/{pod.pk}"
    return {
        **({"code_url": f"{place}/code"} if has_code else {}),
        **({"volumes_url": f"{place}/volumes"} if synced else {}),
        "download_ca": server.ca,
        "download_secret": secrets.download_secret(str(pod.pk)),
    }


def _volume_mounts(pod: Pod, spec: WorkloadSpec) -> tuple[VolumeMount, ...]:
    """Return the mounts of the document's volumes. Raises ValueError if a volume is no longer usable."""
    if not spec.volumes:
        return ()
    pool, project = pod.node.pool, pod.workload.project.name
    if reason := rejection_reason(pool.volumes, pool.name, project, [mount.name for mount in spec.volumes]):
        raise ValueError(reason)
    usable = usable_volumes(pool.volumes, project)
    return tuple(
        VolumeMount(
            mount.name, usable[mount.name].source, mount.path,
            is_writable=usable[mount.name].is_writable and not mount.read_only,
            cache=usable[mount.name].cache,
        )
        for mount in spec.volumes
    )  # fmt: skip


def _declared_secrets(pod: Pod, uses: Sequence[SecretUse], reader: SecretReader) -> DeclaredSecrets:
    """Return the secrets' current values.

    Raises MissingSecret if a secret does not exist, and ValueError if it cannot be used.
    """
    if not uses:
        return DeclaredSecrets()
    try:
        values = {use: reader.read(pod, use) for use in uses}
    except MissingSecret:
        raise
    except UnusableSecret as error:
        raise ValueError(str(error)) from error
    return DeclaredSecrets(
        {use.env: value for use, value in values.items() if use.env},
        {use.file: value for use, value in values.items() if use.file},
    )


def _plugin_secrets(pod: Pod, declared: Mapping[str, str], reader: SecretReader) -> dict[str, str]:
    """Return the pool's plugin secrets, except for variables that the document declares."""
    try:
        return {secret.variable: unseal(secret.sealed) for secret in reader.plugin_secrets(pod, declared)}
    except UnsealError as error:
        raise ValueError(f"a plugin secret of pool {pod.node.pool.name} cannot be used: {error}") from error


def _pod_secrets(pod: Pod, spec: WorkloadSpec) -> dict[str, str]:
    """Return the secrets that the pod and its peers use to authenticate.

    The secrets are derived, so they are never stored.
    """
    values = port_secret_env(pod)
    if not _has_single_pod(spec):
        values["BERTH_GANG_SECRET"] = secrets.gang_secret(str(pod.workload_id), pod.run)
    if getattr(pod.workload, "session", None) is not None:
        values["BERTH_SESSION_SECRET"] = secrets.pod_secret(str(pod.pk))
    return values


def _has_single_pod(spec: WorkloadSpec) -> bool:
    """Return whether the workload always has a single pod, and therefore needs no gang secret."""
    return spec.kind in FIXED_KINDS and sum(role.maximum for role in spec.all_roles) == 1


def awaits_address(pod: Pod, gang: Sequence[Pod]) -> bool:
    """Return whether the pod must wait until the lowest-ranked pod has an address."""
    if not runtime_capabilities(pod.node.pool.runtime).pods_have_addresses:
        return False
    lowest = _lowest_rank_pod(gang, pod)
    return lowest.pk != pod.pk and not lowest.address and lowest.state in LIVE_POD_STATES


def _address_env(pod: Pod, gang: Sequence[Pod]) -> tuple[str, ...]:
    """Return the names of the variables that contain the pod's own address."""
    listens = ("BERTH_HOST",) if pod.endpoint is not None else ()
    is_lowest = _lowest_rank_pod(gang, pod).pk == pod.pk
    return ("BERTH_NODE_ADDRESS", *listens, *(("MASTER_ADDR",) if is_lowest else ()))


def _lowest_rank_pod(gang: Sequence[Pod], pod: Pod) -> Pod:
    return min([*gang, pod], key=lambda other: other.rank)


def device_ids(pod: Pod) -> tuple[str, ...]:
    """Return physical device IDs, or device indices if the node has no device names."""
    names = pod.node.devices
    return tuple(str(names[i]) if i < len(names) else str(i) for i in pod.allocation.devices)


def pod_address(pod: Pod) -> str:
    """Return the pod's own address, or its node's address if the pod has none."""
    return str(pod.address or pod.node.address)


def _endpoint_env(pod: Pod) -> dict[str, str]:
    if pod.endpoint is None:
        return {}
    return {"BERTH_HOST": str(pod.endpoint["address"]), "BERTH_PORT": str(pod.endpoint["port"])}


def _session_env(pod: Pod) -> dict[str, str]:
    session: Session | None = getattr(pod.workload, "session", None)
    if session is None:
        return {}
    return {"BERTH_URL": session.address, "BERTH_GPUS": str(len(pod.allocation.devices))}


def _array_env(pod: Pod) -> dict[str, str]:
    task, array = pod.workload, pod.workload.array
    if array is None:
        return {}
    return {
        "BERTH_ARRAY": array.name,
        "BERTH_ARRAY_INDEX": str(task.array_index),
        "BERTH_ARRAY_TASKS": str(array.task_count),
        "BERTH_ARRAY_ATTEMPT": str(task.attempt),
    }


def _gang_env(pod: Pod, spec: WorkloadSpec, gang: Sequence[Pod]) -> dict[str, str]:
    workload, node, allocation = pod.workload, pod.node, pod.allocation
    pool = node.pool
    rendezvous = workload.rendezvous or {}
    role_replicas = sum(other.role == pod.role for other in gang)
    return {
        "RANK": str(pod.rank),
        "WORLD_SIZE": str(len(gang)),  # size at start; running pods are not notified when other pods join
        "BERTH_WORLD_MIN": str(smallest_gang_size(build_tree(spec))),
        "BERTH_WORLD_MAX": str(sum(role.maximum for role in spec.all_roles)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(pod.rank),
        "MASTER_ADDR": str(rendezvous["address"] or pod_address(_lowest_rank_pod(gang, pod))),
        "MASTER_PORT": str(rendezvous["port"]),
        "BERTH_WORKLOAD": workload.name,
        "BERTH_WORKLOAD_ID": str(workload.pk),
        "BERTH_PROJECT": workload.project.name,
        "BERTH_ROLE": pod.role,
        "BERTH_INDEX": str(pod.index),
        "BERTH_ROLE_REPLICAS": str(role_replicas),
        "BERTH_RUN": str(pod.run),
        "BERTH_POD_ID": str(pod.pk),
        "BERTH_POOL": pool.name,
        "BERTH_NODE": node.name,
        "BERTH_NODE_ADDRESS": node.address,
        "BERTH_RUNTIME": pool.runtime,
        "BERTH_CPUS": f"{allocation.cpu_milli / MILLI:g}",
        "BERTH_GPUS": f"{allocation.gpu_milli_total / MILLI:g}",
        "BERTH_GPU_FRACTION": f"{allocation.gpu_milli / MILLI:g}",
        "BERTH_GRACE_SECONDS": str(spec.grace_period_seconds),
    }
