"""Table of a cycle's plan on the admin site."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from berth.core.wording.words import format_ranges, token_to_words
from berth.server.web.admin_site.links import link_to_existing
from berth.server.web.numbers import NO_VALUE
from pools.models import Node, NodePool
from projects.models import Workload
from scheduler.models import Cycle
from scheduler.reports.decisions import KIND_TITLES

PLAN_HEADERS = ("Decision", "Node pool", "Step", "Workload", "Pods", "Node", "Devices")


class PlanLinks:
    """Links to the workloads, nodes and pools in a cycle's plan. Deleted objects are named without a link."""

    def __init__(self, row: Cycle) -> None:
        bundles = (row.plan or {}).get("bundles", [])
        steps = [step for bundle in bundles for step in bundle.get("steps", ())]
        handles = {each.get("workload", "") for each in (*bundles, *steps)}
        self.workloads = _workload_keys(handles, row.at)
        self.nodes = _keys_by_name(Node, {step.get("node", "") for step in steps})
        self.pools = _keys_by_name(NodePool, {bundle.get("pool", "") for bundle in bundles})

    def workload(self, handle: str) -> str:
        return _link(Workload, self.workloads.get(handle), handle)

    def node(self, name: str) -> str:
        return _link(Node, self.nodes.get(name), name)

    def pool(self, name: str) -> str:
        return _link(NodePool, self.pools.get(name), name)


def plan_rows(bundle: dict[str, Any], links: PlanLinks) -> Iterator[tuple[object, ...]]:
    """Yield one row for each group of pods with the same workload, role, step and node.

    Only the first row names the decision and its pool.
    """
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for step in bundle.get("steps", ()):
        key = (step.get("do", ""), step.get("workload", ""), step.get("role", ""), step.get("node", ""))
        groups.setdefault(key, []).append(step)
    decision: tuple[object, object] = (_describe_decision(bundle, links), links.pool(bundle.get("pool", "")))
    for (step_kind, workload, role, node), steps in groups.items():
        indices = format_ranges(step["index"] for step in steps if "index" in step)
        devices = format_ranges(device for step in steps for device in step.get("devices") or ())
        yield (
            *decision, token_to_words(step_kind),
            links.workload(workload), f"{role} {indices}".strip(), links.node(node), devices or NO_VALUE,
        )  # fmt: skip
        decision = ("", "")


def _describe_decision(bundle: dict[str, Any], links: PlanLinks) -> SafeString:
    kind = bundle.get("kind", "")
    title = KIND_TITLES.get(kind) or token_to_words(kind)
    return format_html("{} for {}", title, links.workload(bundle.get("workload", "")))


def _link(model: type[Workload | Node | NodePool], key: object, text: str) -> str:
    return text if key is None else link_to_existing(model, key, text)


def _workload_keys(handles: set[str], at: datetime) -> dict[str, object]:
    """Map each `project/name` handle to the primary key of the workload that had this name at `at`."""
    pairs = [handle.partition("/")[::2] for handle in handles]
    rows = Workload.objects.filter(
        project__name__in={project for project, _ in pairs},
        name__in={name for _, name in pairs},
        submitted_at__lte=at,
    )
    values = rows.order_by("submitted_at").values_list("pk", "project__name", "name")
    return {f"{project}/{name}": pk for pk, project, name in values}


def _keys_by_name(model: type[Node | NodePool], names: set[str]) -> dict[str, object]:
    return dict(model._default_manager.filter(name__in=names).order_by("pk").values_list("name", "pk"))
