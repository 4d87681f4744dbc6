"""Apply a suggested change to a scenario, without the engine's own code."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from scheduler.engine.smallest_change.change import Change

Document = dict[str, Any]


def with_change(document: Document, name: str, change: Change) -> Document:
    """Return the scenario with the change applied to workload `name`, as a user or admin would apply it."""
    changed = deepcopy(document)
    globals()[f"_{change.kind}"](changed, _named(changed["workloads"], name), change)
    return changed


def _named(rows: list[Document], name: str) -> Document:
    return next(row for row in rows if row["name"] == name)


def leaf_roles(workload: Document, name: str | None = None) -> Iterator[Document]:
    groups = workload.get("groups", [{"roles": workload.get("roles", [])}])
    yield from (role for group in groups for role in group["roles"] if name in (None, role["name"]))


def _resumed(document: Document, workload: Document, change: Change) -> None:
    del workload["suspended"]


def _backoff_over(document: Document, workload: Document, change: Change) -> None:
    del workload["backoff_until"]


def _preemption_delay_over(document: Document, workload: Document, change: Change) -> None:
    workload["preemption_delay"] = 0


def _workload_ended(document: Document, workload: Document, change: Change) -> None:
    document["workloads"].remove(_named(document["workloads"], change.subject))
    for other in document["workloads"]:
        other["after"] = [entry for entry in other.get("after", ()) if entry["workload"] != change.subject]


_dependency_ended = _workload_ended


def _preemptible(document: Document, workload: Document, change: Change) -> None:
    workload["preemptible"] = True


def _pool_allowed(document: Document, workload: Document, change: Change) -> None:
    workload["pools"] = [*dict.fromkeys([*workload["pools"], change.subject])]


def _label_dropped(document: Document, workload: Document, change: Change) -> None:
    for role in leaf_roles(workload, change.subject):
        del role["node_selector"][change.resource]


def _taint_tolerated(document: Document, workload: Document, change: Change) -> None:
    for role in leaf_roles(workload, change.subject):
        toleration = {"key": change.resource, "operator": "Exists"}
        role["tolerations"] = [*role.get("tolerations", ()), toleration]


def _gpu_model_allowed(document: Document, workload: Document, change: Change) -> None:
    for role in leaf_roles(workload, change.subject):
        role["gpu_models"] = [*role["gpu_models"], change.after]


def _topology_dropped(document: Document, workload: Document, change: Change) -> None:
    for part in (workload, *workload.get("groups", ()), *leaf_roles(workload)):
        if part.get("topology", {}).get("required") == change.resource:
            del part["topology"]["required"]


def _spread_raised(document: Document, workload: Document, change: Change) -> None:
    for role in leaf_roles(workload, change.subject):
        role["spread_per_node"] = change.after


def _request_lowered(document: Document, workload: Document, change: Change) -> None:
    after = change.after
    assert isinstance(after, int)
    for role in leaf_roles(workload, change.subject):
        match change.resource:
            case "replicas":
                role["max"] = after if role["max"] == role["min"] else role["max"]
                role["min"] = after
            case "devices":
                role["gpu"] = after
            case "gpu" | "cpu":
                role[change.resource] = after / 1000
            case "limit.cpu":
                role["limit"] = {"cpu": after / 1000}
                role["cpu"] = min(role["cpu"], after / 1000)
            case resource:
                role[resource] = after


def _max_runtime_lowered(document: Document, workload: Document, change: Change) -> None:
    workload["max_runtime"] = change.after


def _priority_raised(document: Document, workload: Document, change: Change) -> None:
    workload["priority"] = change.after


def _quota_raised(document: Document, workload: Document, change: Change) -> None:
    _quota(document, change)[change.resource] = _units(change)


def _limit_raised(document: Document, workload: Document, change: Change) -> None:
    _quota(document, change).setdefault("limit", {})[change.resource] = _units(change)


def _quota(document: Document, change: Change) -> Document:
    queue = _named(document["departments"] + document["projects"], change.subject)
    absent = {"gpu": 0, "cpu": None, "memory_mib": None}
    quota: Document = queue["quotas"].setdefault(change.pool, absent)
    return quota


def _units(change: Change) -> float:
    assert isinstance(change.after, int)
    return change.after if change.resource == "memory_mib" else change.after / 1000


def _minimum_runtime_over(document: Document, workload: Document, change: Change) -> None:
    assert isinstance(change.before, int)
    for row in document["pools"] + document["departments"] + document["projects"]:
        for key in ("reclaim_min_runtime", "preempt_min_runtime"):
            if row.get(key):
                row[key] = max(0, row[key] - change.before)


def _node_opened(document: Document, workload: Document, change: Change) -> None:
    _named(document["nodes"], change.subject)["state"] = "ready"


def _consolidation_enabled(document: Document, workload: Document, change: Change) -> None:
    _named(document["pools"], change.pool)["consolidation"]["enabled"] = True


def _max_moves_raised(document: Document, workload: Document, change: Change) -> None:
    _named(document["pools"], change.pool)["consolidation"]["max_moves"] = change.after


def _nodes_added(document: Document, workload: Document, change: Change) -> None:
    # The pools define no other node shape.
    first = next(node for node in document["nodes"] if node["pool"] == change.pool)
    assert isinstance(change.after, int)
    for number in range(change.after):
        new = {"name": f"{change.pool}-new-{number}", "state": "ready", "only_project": None}
        document["nodes"].append({**first, **new})
