"""Check a cluster for a new pool without changing anything in the cluster."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from berth.core.wording.words import format_count
from pools.kubernetes.api_server.api import Api, ApiError
from pools.kubernetes.cluster import PoolAccess
from pools.kubernetes.manifests import namespace_name
from pools.kubernetes.nodes import INSTALLATION_LABEL, ClusterNode, Inventory, is_large_enough, read_inventory
from pools.kubernetes.preview.permissions import REVIEW, Permission, find_missing_permissions
from pools.providers.base import Shape
from pools.providers.preview import Finding, Preview, PreviewedNode, error, warning

NAMES_SHOWN = 5
CLOCK_OFFSET_MAX = timedelta(seconds=15)
ROLE = "deploy/kubernetes/role.yaml"
NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
Object = Mapping[str, Any]


def examine_cluster(access: PoolAccess, shape: Shape, claimed_by: Mapping[str, str]) -> Preview:
    """Return the cluster's nodes for a pool with this node shape, and the problems found.

    `claimed_by` maps node UIDs to pool names. Raises ApiError or Unreachable.
    """
    api, settings = access.cluster.api, access.settings
    version = str(api.get("/version").get("gitVersion") or "")
    if not version:
        raise ApiError(502, "NotKubernetes", "the server did not respond like a Kubernetes API server")
    missing = find_missing_permissions(api)
    findings = [_permission_finding(permission) for permission in missing]
    findings += _clock_findings(api.clock_offset)
    source = f"Kubernetes {version.removeprefix('v')} at {api.server}"
    listed = _list_if_allowed(api, NODES, missing, "nodes")
    if listed is None:
        return Preview(source, findings=tuple(findings))
    pods = _list_if_allowed(api, PODS, missing, "pods") or ()
    at = datetime.now(UTC) + api.clock_skew
    inventory = read_inventory(listed, pods, settings, at, lambda pod: False)
    nodes = tuple(
        _preview_node(node, inventory, shape, claimed_by)
        for node in sorted(inventory.nodes.values(), key=lambda node: node.name)
    )
    findings += _node_findings(access, listed, inventory, shape)
    findings += _namespace_findings(access, _list_if_allowed(api, NAMESPACES, missing, "namespaces") or ())
    return Preview(source, nodes, tuple(findings))


def _list_if_allowed(
    api: Api, path: str, missing: Sequence[Permission], resource: str
) -> list[dict[str, Any]] | None:
    """Return all objects of a resource, or None if the account may not list them."""
    if any((each.verb, each.resource) == ("list", resource) for each in missing):
        return None
    try:
        return api.list(path)[0]
    except ApiError as rejection:
        if rejection.status == 403:
            return None  # the account is not even allowed to check its own permissions
        raise


def _clock_findings(offset: timedelta) -> Iterable[Finding]:
    if abs(offset) >= CLOCK_OFFSET_MAX:
        direction = "ahead of" if offset > timedelta(0) else "behind"
        yield warning(
            f"The API server's clock is {abs(offset).total_seconds():.0f} s {direction} Berth's. Berth "
            "compensates for the difference, but pods show times from both clocks.",
            "Synchronize the clocks, for example with NTP.",
        )


def _permission_finding(permission: Permission) -> Finding:
    if permission == REVIEW:
        return warning(
            "The account may not check its own permissions, so missing ones are not listed here.",
            f"Add the rule {permission.rule} to its ClusterRole.",
        )
    remedy = f"Add the rule {permission.rule} to its ClusterRole, or apply {ROLE}."
    message = f"The account may not {permission.text}, so Berth cannot {permission.purpose}."
    return (error if permission.is_required else warning)(message, remedy)


def _preview_node(
    node: ClusterNode, inventory: Inventory, shape: Shape, claimed_by: Mapping[str, str]
) -> PreviewedNode:
    total, used = node.allocatable, inventory.foreign_requests(node)
    obstacle = node.obstacle
    if not obstacle and node.uid in claimed_by:
        obstacle = f"the node is used by pool {claimed_by[node.uid]}"
    if not obstacle and not is_large_enough(node, shape):
        obstacle = "the node is smaller than the pool's node shape: it has " + _missing_amounts(node, shape)
    return PreviewedNode(
        name=node.name,
        total=Shape(total.cpu_milli, total.memory_mib, total.gpus, node.gpu_model, node.gpu_memory_mib),
        used=Shape(used.cpu_milli, used.memory_mib, used.gpus),
        obstacle=obstacle,
        details=format_count(used.pods, "pod") + " of others" if used.pods else "",
    )


def _missing_amounts(node: ClusterNode, shape: Shape) -> str:
    total = node.allocatable
    amounts = (
        (total.gpus, shape.gpus, "GPUs"),
        (total.cpu_milli / 1000, shape.cpu_milli / 1000, "cores"),
        (total.memory_mib, shape.memory_mib, "MiB of memory"),
    )
    return ", ".join(f"{has:g} of {needs:g} {unit}" for has, needs, unit in amounts if has < needs)


def _node_findings(
    access: PoolAccess, listed: Sequence[Object], inventory: Inventory, shape: Shape
) -> Iterable[Finding]:
    settings = access.settings
    if not listed:
        yield error("The cluster has no nodes.")
    elif not inventory.nodes:
        selector = ", ".join(f"{key}={value}" for key, value in settings.node_selector.items())
        labels = Counter(
            key for node in listed for key in node["metadata"].get("labels") or () if "gpu" in key.lower()
        )
        hint = f" Labels that name GPUs: {_join_names(sorted(labels))}." if labels else ""
        yield error(
            f"No node has the labels {selector}; the cluster has {format_count(len(listed), 'node')}.",
            f"Change provider_settings.node_selector.{hint}",
        )
    elif len(listed) > len(inventory.nodes):
        others = format_count(len(listed) - len(inventory.nodes), "other node")
        yield warning(f"The selector excludes {others} of the cluster.")
    if shape.gpus and inventory.nodes and not any(n.allocatable.gpus for n in inventory.nodes.values()):
        offered = sorted(
            {
                name
                for node in listed
                for name in (node.get("status") or {}).get("allocatable") or ()
                if "/" in name and not name.startswith("hugepages")
            }
        )
        hint = f"The nodes offer: {_join_names(offered)}." if offered else "The nodes offer no devices."
        yield error(
            f"No selected node offers {settings.gpu_resource}. {hint}",
            "Install the GPU vendor's device plugin, or set provider_settings.gpu_resource.",
        )


def _namespace_findings(access: PoolAccess, namespaces: Sequence[Object]) -> Iterable[Finding]:
    """Yield a finding if Berth would use namespaces that do not belong to this installation."""
    installation = access.cluster.installation
    prefix = namespace_name(installation, "")
    foreign = sorted(
        each["metadata"]["name"]
        for each in namespaces
        if each["metadata"]["name"].startswith(prefix)
        and (each["metadata"].get("labels") or {}).get(INSTALLATION_LABEL) != installation
    )
    if foreign:
        yield warning(
            f"Namespaces that Berth would use for projects exist and do not belong to it: "
            f"{_join_names(foreign)}. "
            "Workloads of these projects cannot start.",
            f"Delete these namespaces, or label them {INSTALLATION_LABEL}={installation}.",
        )


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
