"""Links to the page where users can make the smallest change, and to the workloads that it affects."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.urls import reverse

from berth.core.merge_patch import find_patch
from berth.core.spec import RoleSpec
from berth.core.wording.words import format_gpu_time, format_gpus
from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.missing_roles import department_admin_names, platform_admin_names
from projects.models import Project, Workload
from projects.models.workloads import LIVE_PHASES
from projects.queries.lost_work import lost_gpu_seconds
from projects.selectors import workloads
from projects.services.workloads import is_editable
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.engine.smallest_change.sentences import NAMED_MAX, WITHOUT_EVICTIONS
from scheduler.reports.what_if.smallest_change import RenderedChange

QUEUE_KINDS = (ChangeKind.QUOTA_RAISED, ChangeKind.LIMIT_RAISED)
POOL_KINDS = (ChangeKind.CONSOLIDATION_ENABLED, ChangeKind.MAX_MOVES_RAISED, ChangeKind.NODES_ADDED)
ROLE_RESOURCES = ("cpu", "memory_mib", "gpu_memory_mib")
LIMIT_RESOURCES = ("limit.cpu", "limit.memory_mib")
URL_MAX = 4000  # well below the 8 KiB to which proxies often limit the request line
DEFAULT_NAME = RoleSpec.model_fields["name"].default

COPY_NOTE = "Arrays cannot be edited. A copy with this change can replace the pending tasks."
EFFECTS = " This would "  # start of the sentence about the effects of a change

Change = Mapping[str, Any]
LinkedText = list[tuple[str, str]]  # texts, each with its URL or ""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeLink:
    label: str
    url: str
    note: str = ""  # anything else that the user has to do


def link_to_change(actor: Actor, workload: Workload, change: Change) -> ChangeLink | None:
    """Return a link to a form that already contains the change, or None if the user may not make the change.

    Long values and environment variables are left out of the URL.
    """
    if ChangeKind(change["kind"]) in (*QUEUE_KINDS, *POOL_KINDS, ChangeKind.NODE_OPENED):
        return link_to_quota_pool_or_node(actor, workload.project, change)
    document = apply_change_to_document(workload.spec, workload.pools, change)
    if workload.array_id is not None:  # a task cannot be edited, but the array can be copied
        can_replace = may(actor, Action.SUBMIT, workload.project) and may(actor, Action.OPERATE, workload)
        if document is None or not can_replace:
            return None
        query = {"like": workload.array_id, "change": json.dumps(dict(change), separators=(",", ":"))}
        return ChangeLink("Copy pending tasks", f"{reverse('submit')}?{urlencode(query)}", COPY_NOTE)
    if not is_editable(workload) or not may(actor, Action.OPERATE, workload):
        return None
    if document is None or not (patch := find_patch(workload.spec, document)):
        return None
    form = reverse("workload-edit", args=[workload.pk])
    if any(role.get("env") for role in _iter_roles(patch)):
        return ChangeLink("Edit workload", form)
    url = f"{form}?{urlencode({'patch': json.dumps(patch, separators=(',', ':'))})}"
    return ChangeLink("Review change", url) if len(url) <= URL_MAX else ChangeLink("Edit workload", form)


def link_to_quota_pool_or_node(actor: Actor, project: Project, change: Change) -> ChangeLink | None:
    """Return a link to the page where a project quota, a pool or a node can be changed.

    Return None for any other change, or if the user may not make the change.
    """
    kind, subject, pool = ChangeKind(change["kind"]), str(change["subject"]), str(change["pool"])
    if kind in QUEUE_KINDS:
        is_project = subject == project.name
        owner = project if is_project else project.department
        if owner.name != subject or not may(actor, Action.SET_QUOTA, owner):
            return None
        place = ["projects" if is_project else "departments", subject, pool]
        return ChangeLink(f"Edit quota of {subject}", reverse("quota", args=place))
    if kind in POOL_KINDS:
        if not may(actor, Action.ADMINISTER) or not NodePool.objects.filter(name=pool).exists():
            return None
        return ChangeLink(f"Edit pool {pool}", reverse("pool-settings", args=[pool]))
    if kind is ChangeKind.NODE_OPENED:
        can = may(actor, Action.ADMINISTER)
        return ChangeLink(f"Open node {subject}", reverse("node", args=[subject])) if can else None
    return None


def link_workloads(actor: Actor, sentence: str, handles: Sequence[str]) -> LinkedText:
    """Split a sentence at the named workloads. Return each part with its URL, or "" for other text."""
    return link_names(sentence, workload_urls(actor, [handle for handle in handles if handle in sentence]))


def workload_urls(actor: Actor, handles: Iterable[str]) -> Mapping[str, str]:
    """Return the URLs of the named workloads that the user can see and that have not ended, by handle."""
    return {row.handle: reverse("workload", args=[row.pk]) for row in named_workloads(actor, handles)}


def named_workloads(actor: Actor, handles: Iterable[str]) -> QuerySet[Workload]:
    """Return the workloads with these handles that the user can see and that have not ended."""
    names = [handle.partition("/")[::2] for handle in handles]
    if not names:
        return workloads(actor).none()
    named = Q(*(Q(project__name=project, name=name) for project, name in names), _connector=Q.OR)
    return workloads(actor).filter(named, phase__in=LIVE_PHASES)


def link_names(sentence: str, urls: Mapping[str, str]) -> LinkedText:
    """Split a sentence at the names in `urls`. Return each part with its URL, or "" for other text."""
    longest_first = sorted(urls, key=len, reverse=True)
    pattern = "|".join(rf"(?<!\S){re.escape(handle)}(?![\w-])" for handle in longest_first)
    parts = re.split(f"({pattern})", sentence) if urls else [sentence]
    return [(part, urls.get(part, "")) for part in parts if part]


def describe_change_and_effects(
    actor: Actor, project: Project, answer: RenderedChange, now: datetime
) -> tuple[LinkedText, LinkedText]:
    """Return two sentences with links: one about a change, and one about its effects on other workloads."""
    sentence, _, _ = answer.sentence.partition(WITHOUT_EVICTIONS)
    change, separator, effects = sentence.partition(EFFECTS)
    if separator:
        losses = losses_by_workload(actor, project, answer.evicted, now)
        effects = _add_losses(f"{EFFECTS.lstrip()}{effects}", losses)
    ended = _ended_workloads(answer.change)
    for name, loss in losses_by_workload(actor, project, ended, now).items():
        effects = f"{name} would lose {loss.amounts}. {effects}".rstrip()
    named = [*answer.affected, *ended]
    return link_workloads(actor, change, named), link_workloads(actor, effects, named)


def _ended_workloads(change: Change | None) -> list[str]:
    """Return a list with the name of the workload that the change would end.

    The list is empty for any other change.
    """
    if change is None or change["kind"] != ChangeKind.WORKLOAD_ENDED:
        return []
    return [str(change["subject"])]


class EvictionLoss(NamedTuple):
    """GPUs and work that an evicted workload would lose, as text.

    `is_own` is true if the workload belongs to the preemptor's project.
    """

    gpus: str
    work: str
    is_own: bool

    @property
    def amounts(self) -> str:
        return f"{self.gpus} and {self.work} of work"


def _add_losses(effects: str, losses: Mapping[str, EvictionLoss]) -> str:
    """Add each evicted workload's loss to the sentence `effects`, and mark the workloads of the preemptor's
    own project.
    """
    for name, loss in losses.items():
        if effects == f"This would evict {name}.":
            own = " from the same project" if loss.is_own else ""
            return f"Evicts {name}{own}: {loss.amounts} lost."
        own = "same project, " if loss.is_own else ""
        effects = re.sub(rf"(?<!\S){re.escape(name)}(?![\w-])", f"{name} ({own}{loss.amounts} lost)", effects)
    return effects


def losses_by_workload(
    actor: Actor, project: Project, handles: Sequence[str], now: datetime
) -> Mapping[str, EvictionLoss]:
    """Return the GPUs and the work that up to three evicted workloads would lose, by workload."""
    result = {}
    for row in named_workloads(actor, handles[:NAMED_MAX]).filter(started_at__isnull=False):
        assert row.started_at is not None, "the filter excludes workloads that have not started"
        seconds = lost_gpu_seconds(row.gpu_milli_now, row.started_at, row.last_checkpoint_at, now)
        gpus, work = (
            text.replace(" ", "\N{NO-BREAK SPACE}")
            for text in (format_gpus(row.gpu_milli_now), format_gpu_time(seconds))
        )
        result[row.handle] = EvictionLoss(gpus, work, row.project_id == project.pk)
    return result


def describe_responsible_admins(actor: Actor, project: Project, change: Change) -> str:
    """Return a sentence that says which admins can make the change.

    Return "" if the user or the owner can make it.
    """
    kind = ChangeKind(change["kind"])
    if kind in QUEUE_KINDS and not may(actor, Action.SET_QUOTA, project.department):
        names = department_admin_names(project.department) or platform_admin_names()
    elif kind in (*POOL_KINDS, ChangeKind.NODE_OPENED) and not may(actor, Action.ADMINISTER):
        names = platform_admin_names()
    else:
        return ""
    return f"{names or 'A platform admin'} can make this change."


def apply_change_to_document(spec: Document, pools: Sequence[str], change: Change) -> Document | None:
    """Apply the change to the document and return the result, or return None if the document cannot express
    the change. `pools` contains the pools that the workload may use.
    """
    document = deepcopy(spec)
    after = change["after"]
    match ChangeKind(change["kind"]):
        case ChangeKind.PREEMPTIBLE:
            document["preemptible"] = True
        case ChangeKind.PRIORITY_RAISED:
            document["priority"] = after
        case ChangeKind.MAX_RUNTIME_LOWERED:
            document["max_runtime"] = after
        case ChangeKind.POOL_ALLOWED:
            document["pools"] = [*pools, change["subject"]]
        case ChangeKind.TOPOLOGY_DROPPED:
            _drop_topology(document, change["resource"])
        case _:
            named = (
                role for role in _iter_roles(document) if role.get("name", DEFAULT_NAME) == change["subject"]
            )
            role = next(named, None)
            if role is None or not _change_role(role, change):
                return None
    return document


def _iter_roles(part: Mapping[str, Any]) -> Iterator[Document]:
    yield from part.get("roles") or ()
    for group in part.get("groups") or ():
        yield from _iter_roles(group)


def _drop_topology(part: Document, level: str) -> None:
    """Remove the required topology level from a workload or group and from all roles and groups below it."""
    if (part.get("topology") or {}).get("required") == level:
        part["topology"] = {key: value for key, value in part["topology"].items() if key != "required"}
        if not part["topology"]:
            del part["topology"]
    for child in (*(part.get("roles") or ()), *(part.get("groups") or ())):
        _drop_topology(child, level)


def _change_role(role: Document, change: Change) -> bool:
    """Apply the change to the role. Return False if the role cannot express the change."""
    resource, after = str(change["resource"]), change["after"]
    match ChangeKind(change["kind"]):
        case ChangeKind.LABEL_DROPPED:
            selector = role.get("node_selector") or {}
            role["node_selector"] = {key: value for key, value in selector.items() if key != resource}
        case ChangeKind.TAINT_TOLERATED:
            toleration = {"key": resource, "operator": "Exists"}
            role["tolerations"] = [*(role.get("tolerations") or ()), toleration]
        case ChangeKind.GPU_MODEL_ALLOWED:
            role["gpu_models"] = [*(role.get("gpu_models") or ()), after]
        case ChangeKind.SPREAD_RAISED:
            role["spread_per_node"] = after
        case ChangeKind.REQUEST_LOWERED:
            return _lower_request(role, resource, change["before"], after)
        case _:
            return False
    return True


def _lower_request(role: Document, resource: str, before: Any, after: Any) -> bool:
    """Lower the number of replicas, or the request or limit of each replica.

    Return False if the resource is unknown.
    """
    if resource == "replicas":
        keys = ["replicas"] if role.get("replicas") is not None else ["min"]
        if keys == ["min"] and role.get("max") == role.get("min"):
            keys.append("max")
        role.update(dict.fromkeys(keys, after))
    elif resource == "devices" and role.get("gpu_devices") is not None:
        role["gpu_devices"] = after
    elif resource in ("devices", "gpu"):
        role["gpu"] = after
    elif resource in ROLE_RESOURCES:
        role[resource] = after
        limit = role.get("limit") or {}
        if resource in limit and limit[resource] == before:
            role["limit"] = {**limit, resource: after}
    elif resource in LIMIT_RESOURCES:
        resource = resource.removeprefix("limit.")
        role["limit"] = {**(role.get("limit") or {}), resource: after}
        if (role.get(resource) or 0) > after:
            role[resource] = after
    else:
        return False
    return True
