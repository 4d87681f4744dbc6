"""Manifests of the namespaces, pods and secrets that Berth creates in a cluster.

A pod shares the process namespace of its sandbox. Otherwise, its command would be process 1 and ignore
SIGTERM by default.
"""

import base64
import hashlib
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from pools.engine.volumes import NFS
from pools.kubernetes.code.container import code_container
from pools.kubernetes.files.container import (
    ANNOTATION as FILES_ANNOTATION,
)
from pools.kubernetes.files.container import (
    COPY_SECONDS,
    encode_files_to_copy,
    files_container,
    files_to_copy,
)
from pools.kubernetes.nodes import INSTALLATION_LABEL, POOL_LABEL
from pools.kubernetes.settings import KubernetesSettings, Workspaces
from pools.runtimes.base import PodSpec, VolumeMount
from pools.runtimes.shim.code import DIRECTORY as CODE_DIRECTORY
from pools.runtimes.shim.code import VARIABLE as CODE_VARIABLE
from pools.runtimes.shim.secrets import INSIDE as SECRETS_DIRECTORY
from pools.runtimes.shim.secrets import VARIABLE as SECRETS_VARIABLE

CONTAINER = "main"
PROJECT_LABEL, WORKLOAD_LABEL = "berth.dev/project", "berth.dev/workload"
INSTANCE_ANNOTATION = "berth.dev/instance"
NAME_MAX = 63
WORKSPACE, POD_DIRECTORY = "/berth/workspace", "/berth/pod"
# Images may set this environment variable to "all", which gives a container access to all GPUs.
# In pods with GPUs, the cluster's device plugin sets NVIDIA_VISIBLE_DEVICES.
VISIBLE_DEVICES, NO_DEVICES = "NVIDIA_VISIBLE_DEVICES", "void"
# The only environment variables of the containers that receive code and collect files.
CODE_ENVIRONMENT = {"BERTH_POD_DIR": POD_DIRECTORY, VISIBLE_DEVICES: NO_DEVICES}
PULL_POLICIES = {"if_not_present": "IfNotPresent", "always": "Always", "never": "Never"}
_NOT_A_LABEL = re.compile(r"[^a-z0-9-]+")
Manifest = dict[str, Any]


def namespace_name(installation: str, project: str) -> str:
    """Return the namespace of a project's pods. A long name is shortened but remains unique."""
    name = f"berth-{_NOT_A_LABEL.sub('-', installation.lower()).strip('-')}-{project}"
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(f"{installation}/{project}".encode()).hexdigest()[:10]
    return f"{name[: NAME_MAX - 11].rstrip('-')}-{digest}"


def is_namespace_of(installation: str, namespace: str) -> bool:
    """Return whether the namespace's name has the form that this installation uses."""
    return namespace.startswith(namespace_name(installation, "")[: NAME_MAX - 11].rstrip("-"))


def namespace_manifest(name: str, installation: str, project: str) -> Manifest:
    labels = {INSTALLATION_LABEL: installation, PROJECT_LABEL: project}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod_manifest(
    pod_spec: PodSpec, namespace: str, node: str, installation: str, settings: KubernetesSettings
) -> Manifest:
    mounts, volumes = _mounts_and_volumes(pod_spec, settings.workspaces)
    container = {
        "name": CONTAINER,
        "image": pod_spec.image,
        "imagePullPolicy": PULL_POLICIES[pod_spec.image_pull_policy],
        **({"command": [_escape_variables(part) for part in pod_spec.command]} if pod_spec.command else {}),
        "env": _environment_variables(pod_spec),
        "workingDir": _working_directory(pod_spec),
        "resources": _container_resources(pod_spec, settings.gpu_resource),
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    receiver = code_container(container, CODE_ENVIRONMENT, settings.gpu_resource)
    grace, wanted = max(pod_spec.grace_seconds, 1), files_to_copy(pod_spec)
    containers, annotations = [container], {}
    if wanted is not None:
        containers.append(files_container(container, CODE_ENVIRONMENT, grace))
        annotations[FILES_ANNOTATION] = encode_files_to_copy(wanted)
        grace += COPY_SECONDS
    pull_secrets = [{"name": pull_secret_name(pod_spec.pod_id)}] if pod_spec.registry_auth else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_spec.pod_id,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "berth",
                INSTALLATION_LABEL: installation,
                POOL_LABEL: pod_spec.pool,
                PROJECT_LABEL: pod_spec.project,
                WORKLOAD_LABEL: pod_spec.workspace,
            },
            "annotations": {
                INSTANCE_ANNOTATION: pod_spec.instance_id, "berth.dev/name": pod_spec.name, **annotations,
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "shareProcessNamespace": True,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "affinity": _affinity(node),
            "tolerations": [rule.manifest() for rule in settings.tolerations],
            "imagePullSecrets": pull_secrets,
            **({"initContainers": [receiver]} if pod_spec.code_url else {}),
            "containers": containers,
            "volumes": volumes,
        },
    }  # fmt: skip


def secret_manifests(pod_spec: PodSpec, namespace: str, pod_uid: str) -> list[Manifest]:
    """Return the manifests of a pod's secrets. The cluster deletes the secrets together with the pod."""
    contents = {}
    if pod_spec.secret_env or pod_spec.secret_files:
        data = {_variable_key(name): value for name, value in pod_spec.secret_env.items()}
        data |= {_file_key(name): value for name, value in pod_spec.secret_files.items()}
        contents[pod_spec.pod_id] = "Opaque", data
    if pod_spec.registry_auth:
        data = {".dockerconfigjson": pod_spec.registry_auth}
        contents[pull_secret_name(pod_spec.pod_id)] = "kubernetes.io/dockerconfigjson", data
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_spec.pod_id, "uid": pod_uid}
    return [
        {
            "apiVersion": "v1", "kind": "Secret", "type": kind, "immutable": True,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        for name, (kind, data) in contents.items()
    ]  # fmt: skip


def pull_secret_name(pod_id: str) -> str:
    return f"{pod_id}-pull"


def _working_directory(pod_spec: PodSpec) -> str:
    """Return the command's working directory.

    This is the directory `start_in` of the workspace, if it is set. Otherwise, a relative path is resolved
    against the code's directory or, if the pod has no code, against the workspace.
    """
    if pod_spec.start_in:
        return f"{WORKSPACE}/{pod_spec.start_in}"
    base = f"{POD_DIRECTORY}/{CODE_DIRECTORY}" if pod_spec.code_url else WORKSPACE
    return posixpath.join(base, pod_spec.working_dir) if pod_spec.working_dir else base


def _environment_variables(pod_spec: PodSpec) -> list[Manifest]:
    own = {
        "BERTH_WORKSPACE": WORKSPACE,
        "BERTH_POD_DIR": POD_DIRECTORY,
        **({CODE_VARIABLE: f"{POD_DIRECTORY}/{CODE_DIRECTORY}"} if pod_spec.code_url else {}),
        **({SECRETS_VARIABLE: SECRETS_DIRECTORY} if pod_spec.secret_files else {}),
        **({} if pod_spec.devices else {VISIBLE_DEVICES: NO_DEVICES}),
    }
    plain = {**{name: value for name, value in pod_spec.env.items() if name != VISIBLE_DEVICES}, **own}
    addresses = [name for name in pod_spec.address_env if name != VISIBLE_DEVICES]
    secrets = [name for name in pod_spec.secret_env if name not in (VISIBLE_DEVICES, *addresses)]
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        *({"name": name, "valueFrom": address} for name in addresses),
        *(
            {"name": name, "value": _escape_variables(value)}
            for name, value in plain.items()
            if name not in secrets and name not in addresses
        ),
        *(
            {
                "name": name,
                "valueFrom": {"secretKeyRef": {"name": pod_spec.pod_id, "key": _variable_key(name)}},
            }
            for name in secrets
        ),
    ]


def _escape_variables(text: str) -> str:
    """Escape `$(NAME)`, which Kubernetes would otherwise expand."""
    return text.replace("$", "$$")


def _container_resources(pod_spec: PodSpec, gpu_resource: str) -> Manifest:
    """Return the resource requests and limits. If no limit is set, the request is also the limit."""
    cpu, memory = f"{pod_spec.cpu_milli}m", f"{pod_spec.memory_mib}Mi"
    requests = {"cpu": cpu, "memory": memory}
    limits = {}
    if pod_spec.cpu_limit_milli or pod_spec.cpu_milli:
        limits["cpu"] = f"{pod_spec.cpu_limit_milli or pod_spec.cpu_milli}m"
    if pod_spec.memory_limit_mib or pod_spec.memory_mib:
        limits["memory"] = f"{pod_spec.memory_limit_mib or pod_spec.memory_mib}Mi"
    if pod_spec.devices:
        requests[gpu_resource] = limits[gpu_resource] = str(len(pod_spec.devices))
    return {"requests": requests, "limits": limits}


def _affinity(node: str) -> Manifest:
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _mounts_and_volumes(
    pod_spec: PodSpec, workspaces: Workspaces | None
) -> tuple[list[Manifest], list[Manifest]]:
    disk_limit = {"sizeLimit": f"{pod_spec.workspace_limit_mib}Mi"} if pod_spec.workspace_limit_mib else {}
    memory_limit = {"sizeLimit": f"{pod_spec.memory_limit_mib}Mi"} if pod_spec.memory_limit_mib else {}
    volumes: list[Manifest] = [
        {"name": "pod", "emptyDir": disk_limit},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", **memory_limit}},
        {"name": "workspace", **_workspace_volume(workspaces, disk_limit)},
    ]
    workspace: Manifest = {"name": "workspace", "mountPath": WORKSPACE}
    if workspaces is not None:
        workspace["subPath"] = pod_spec.workspace
    mounts = [
        {"name": "pod", "mountPath": POD_DIRECTORY},
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
        workspace,
    ]
    for number, volume in enumerate(pod_spec.volumes):
        volumes.append({"name": f"volume-{number}", **_volume_source(volume)})
        mounts.append(
            {"name": f"volume-{number}", "mountPath": volume.path, "readOnly": not volume.is_writable}
        )
    if pod_spec.secret_files:
        items = [{"key": _file_key(name), "path": name} for name in pod_spec.secret_files]
        secret = {"secretName": pod_spec.pod_id, "items": items, "defaultMode": 0o444}
        volumes.append({"name": "secrets", "secret": secret})
        mounts.append({"name": "secrets", "mountPath": SECRETS_DIRECTORY, "readOnly": True})
    return mounts, volumes


def _volume_source(volume: VolumeMount) -> Manifest:
    if volume.source.startswith(NFS):
        server, _, path = volume.source.removeprefix(NFS).partition("/")
        return {"nfs": {"server": server, "path": f"/{path}", "readOnly": not volume.is_writable}}
    return {"hostPath": {"path": volume.source, "type": "Directory"}}


def _workspace_volume(workspaces: Workspaces | None, disk_limit: Mapping[str, str]) -> Manifest:
    if workspaces is None:
        return {"emptyDir": dict(disk_limit)}
    if workspaces.nfs is not None:
        return {"nfs": {"server": workspaces.nfs.server, "path": workspaces.nfs.path}}
    return {"hostPath": {"path": workspaces.host_path, "type": "Directory"}}


def _variable_key(name: str) -> str:
    return f"env.{name}"


def _file_key(name: str) -> str:
    return "file." + hashlib.sha256(name.encode()).hexdigest()[:32]
