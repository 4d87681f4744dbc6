"""Audit entries as sentences with links, such as "bert changed the quota of vision in train: GPUs 8 → 12"."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Model, Q
from django.urls import reverse

from berth.core.wording.words import format_count, token_to_words
from pools.models import Node, NodePool
from projects.actor import Actor
from projects.models import Audit, Project, Schedule, ScheduleRun, Template, Workload, WorkloadArray
from projects.web.activity.quota_notes import QuotaNote, quota_notes
from projects.web.activity.scale_requests import describe_request, scale_requests
from projects.web.activity.values import changes

NOUNS = {
    "apitoken": "API token", "autoscaler": "autoscaler", "budget": "budget", "department": "department",
    "machine": "machine", "membership": "role", "node": "node", "nodepool": "node pool", "project": "project",
    "projectsecret": "secret", "quota": "quota", "quotagroup": "quota group", "savedview": "saved view",
    "scalerequest": "scale request", "schedule": "schedule", "service": "service", "session": "session",
    "subscription": "notification", "template": "template", "user": "user",
    "workload": "workload", "workloadarray": "array",
}  # fmt: skip
VERBS = {
    "activate": "activated", "deactivate": "deactivated",
    "begin_weight_update": "began the weight update of", "cancel": "cancelled", "cordon": "cordoned",
    "configure_autoscaler": "changed", "create": "created", "delete": "deleted", "delete_budget": "deleted",
    "delete_secret": "deleted", "delete_template": "deleted", "disable_autoscaler": "disabled",
    "drain": "drained", "edit": "edited", "enable_autoscaler": "enabled", "end_session": "ended",
    "end_weight_update": "ended the weight update of", "identify": "connected single sign-on with",
    "issue": "issued", "open_port": "opened a port of", "pause": "paused scaling of",
    "remove_machine": "removed", "remove_quota": "removed", "delete_schedule": "deleted",
    "pause_schedule": "paused", "resume_schedule": "resumed", "run_schedule": "ran",
    "resend": "sent a delivery again for",
    "resume": "resumed", "retry": "retried", "revoke": "revoked", "save": "saved",
    "scale": "scaled", "scale_in": "scaled in", "scale_out": "scaled out",
    "set_password": "changed the password of",
    "end_sessions": "ended the other browser sessions of",
    "submit": "submitted", "subscribe": "created", "suspend": "suspended", "suspend_idle": "suspended idle",
    "terminate": "terminated", "test": "tested", "uncordon": "uncordoned", "unsubscribe": "deleted",
    "upgrade_agent": "upgraded the agent of", "stop_by_rule": "stopped",
    "delete_files": "deleted files of", "read_files": "read files of",
    "open_shell": "opened a shell in", "close_shell": "closed a shell in",
    "open_copy": "started copying files of", "close_copy": "finished copying files of",
    "open_forward": "opened a forwarded port of", "close_forward": "closed a forwarded port of",
    "open_ssh": "opened an SSH session in", "close_ssh": "closed an SSH session in",
    "open_sftp": "opened an SFTP session in", "close_sftp": "closed an SFTP session in",
}  # fmt: skip
WRITES = {
    "set_quota": "changed",
    "set_budget": "changed",
    "set_template": "changed",
    "set_schedule": "changed",
    "set_secret": "replaced",
}
# Verb of each action on a pool's secrets, hosts or tokens, and the recorded value that names the object.
IN_POOL = {
    "set_secret": ("created secret", "secret"), "delete_secret": ("deleted secret", "secret"),
    "forget_host": ("removed SSH host", "host"), "issue_join_token": ("issued a join token", ""),
    "revoke_join_token": ("revoked a join token", ""),
}  # fmt: skip
SUBMITTED = ("workload", "workloadarray")
CHANNELS = {"chat": "sent to Slack", "mail": "sent by email", "webhook": "sent to a webhook"}
MAX_INLINE_CHANGES = 3
MAX_INLINE_LENGTH = 40


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Changed value. A multi-line value also has a diff."""

    label: str
    before: str
    after: str
    # Pairs of kind and line; the kinds are added, removed, same and gap.
    diff: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ActivityEntry:
    """Sentence about an audit entry: the actor, `verb`, the object `name` with its link, and the `tail`.

    `changes` are the values that the sentence does not contain. `in_group` is the verb for several entries,
    such as "submitted {} workloads", or "" if they are never grouped.
    """

    row: Audit
    verb: str
    name: str
    link: str
    tail: str
    changes: list[ValueChange] = field(default_factory=list)
    in_group: str = ""
    note: QuotaNote | None = None


def describe_entries(actor: Actor, rows: Sequence[Audit]) -> list[ActivityEntry]:
    """Return a sentence for each entry. The number of queries does not depend on the number of entries."""
    projects = Project.objects.in_bulk({row.project_id for row in rows if row.project_id})
    live, schedules = _live_objects(rows), _submission_schedules(rows)
    requests, notes = scale_requests(rows), quota_notes(rows)
    entries = []
    for row in rows:
        project = projects.get(row.project_id or 0)
        if row.object_type == "scalerequest":
            verb, name, link, tail = describe_request(row, requests.get(row.object_id))
            where = f" in {project.name}" if project else ""
            entries.append(ActivityEntry(row, verb, name, link, f"{where}{tail}"))
            continue
        entry = _describe_entry(row, project, live, schedules.get(row.object_id, ""))
        entries.append(replace(entry, note=notes.get(row.change_id or 0)))
    return entries


def _submission_schedules(rows: Iterable[Audit]) -> dict[str, str]:
    """Map the IDs of workloads and arrays to the names of the schedules that submitted them."""
    submitted = [row for row in rows if row.action == "submit"]
    if not submitted:
        return {}
    ids = {kind: [row.object_id for row in submitted if row.object_type == kind] for kind in SUBMITTED}
    runs = ScheduleRun.objects.filter(Q(workload__in=ids["workload"]) | Q(array__in=ids["workloadarray"]))
    values = runs.values_list("workload", "array", "schedule__name")
    return {str(workload or array): name for workload, array, name in values}


def _live_objects(rows: Iterable[Audit]) -> set[tuple[str, str]]:
    """Return (type, ID) pairs for the objects that still exist and have a page."""
    models: dict[str, type[Model]] = {
        "workload": Workload, "workloadarray": WorkloadArray, "template": Template, "schedule": Schedule,
        "node": Node, "nodepool": NodePool,
    }  # fmt: skip
    ids: dict[str, set[str]] = {}
    for row in rows:
        if row.object_type in models:
            ids.setdefault(row.object_type, set()).add(row.object_id)
    return {
        (kind, str(pk))
        for kind, wanted in ids.items()
        for pk in models[kind]._default_manager.filter(pk__in=wanted).values_list("pk", flat=True)
    }


def _describe_entry(
    row: Audit, project: Project | None, live: set[tuple[str, str]], schedule: str
) -> ActivityEntry:
    values = changes(row)
    name, tail = row.object_name, ""
    if row.object_type == "membership":
        return _describe_role(row)
    if row.object_type in ("budget", "quota"):
        name, _, tail = row.object_name.partition(": ")
        tail = "" if row.object_type == "quota" else f": {tail}"
    if row.object_type == "autoscaler":
        name = name.removesuffix(" autoscaler")
    verb = _verb_phrase(row)
    if row.object_type == "nodepool" and row.action in IN_POOL:
        text, key = IN_POOL[row.action]
        if row.action in WRITES and row.before:
            text = f"{WRITES[row.action]} secret"
        verb = f"{text} {(row.after or row.before or {}).get(key, '')}".strip() + " of node pool"
    tail = tail or _format_inline_values(row, values)
    if schedule:
        tail = f" for schedule {schedule}{tail}"
    if project is not None and row.object_type in ("workload", "workloadarray", "projectsecret", "session"):
        tail = f" {'of' if row.object_type == 'projectsecret' else 'in'} {project.name}{tail}"
    is_complete = (row.object_type == "budget" and not row.before) or _shows_all_values(row, values, tail)
    folded = [] if is_complete else [_value_change(*value) for value in values]
    in_group = _group_verb_phrase(row, verb)
    # Subscriptions have names such as "vision to chat".
    if row.object_type == "subscription" and " to " in name:
        name, _, channel = name.rpartition(" to ")
        verb, tail = f"{verb}s about", f", {CHANNELS.get(channel, f'sent to {channel}')}{tail}"
    return ActivityEntry(row, verb, name, _object_url(row, live), tail, folded, in_group)


def _group_verb_phrase(row: Audit, verb: str) -> str:
    """Return the verb phrase for several entries, such as "created {} quotas", or "" if there is none."""
    noun = NOUNS.get(row.object_type, "")
    if not noun or row.action == "prune" or (row.object_type == "nodepool" and row.action in IN_POOL):
        return ""
    begin = verb.removesuffix(f" the {noun} of").removesuffix(f" {noun}")
    return f"{begin} {{}} {noun}s" if begin != verb else ""


def _verb_phrase(row: Audit) -> str:
    if row.action == "prune":
        return "deleted old rows of the"
    noun = NOUNS.get(row.object_type, row.object_type)
    if row.object_type in ("quota", "budget", "autoscaler"):
        noun = f"the {noun} of"
    if row.action in WRITES:
        return f"{WRITES[row.action] if row.before else 'created'} {noun}"
    verb = VERBS.get(row.action, token_to_words(row.action).lower())
    return verb if verb.endswith(f" {noun}") else f"{verb} {noun}"


def _describe_role(row: Audit) -> ActivityEntry:
    """Describe a granted or revoked role. The object's name has the form "dave: member of vision"."""
    user, _, role = row.object_name.partition(": ")
    before = token_to_words((row.before or {}).get("role", "")).lower()
    if row.action == "revoke":
        return ActivityEntry(
            row, "revoked a role of", user, reverse("access"), f": {role}", in_group="revoked {} roles"
        )
    previous = f" (before: {before})" if before else ""
    return ActivityEntry(
        row, "made", user, reverse("access"), f" a {role}{previous}", in_group="granted {} roles"
    )


def _format_inline_values(row: Audit, values: Sequence[tuple[str, str, str]]) -> str:
    """Return a colon and the values that end the entry's sentence, or "" if the sentence shows no values."""
    after = row.after or {}
    if row.action == "submit":
        parts = [after["kind"]] if "kind" in after else []
        if "tasks" in after:
            parts.append(format_count(after["tasks"], "task"))
        parts.append(f"{format_count(after.get('gpus', 0), 'GPU')}{' each' if 'tasks' in after else ''}")
        return f": {', '.join(parts)}, priority {after['priority']}" if "priority" in after else ""
    if row.action == "set_quota" and not row.before:
        return _describe_new_quota(after)
    if row.action in ("cordon", "uncordon", "drain", "terminate") and row.object_type == "node":
        return f": {after['reason']}" if after.get("reason") else ""
    if row.before and row.after and _fits_inline(values):
        return ": " + ", ".join(f"{label} {old or 'none'} → {new or 'none'}" for label, old, new in values)
    return ""


def _describe_new_quota(after: dict[str, Any]) -> str:
    gpus, limit = after.get("gpu"), (after.get("limit") or {}).get("gpu")
    text = f": {format_count(gpus, 'GPU') if gpus is not None else 'any number of GPUs'}"
    if limit is not None:
        text += f", limit {format_count(limit, 'GPU')}"
    return text if after.get("over_quota", True) else f"{text}, never over quota"


def _fits_inline(values: Sequence[tuple[str, str, str]]) -> bool:
    return 0 < len(values) <= MAX_INLINE_CHANGES and all(
        len(text) <= MAX_INLINE_LENGTH and "\n" not in text for value in values for text in value
    )


def _shows_all_values(row: Audit, values: Sequence[tuple[str, str, str]], tail: str) -> bool:
    if all(key == "Phase" or new in ("", "0", row.object_name) for key, _, new in values):
        return True
    return bool(row.before) and bool(row.after) and _fits_inline(values) and " → " in tail


def _value_change(label: str, before: str, after: str) -> ValueChange:
    if "\n" not in before + after:
        return ValueChange(label, before, after)
    old, new = before.splitlines(), after.splitlines()
    if not old or not new:
        kind = "added" if new else "removed"
        return ValueChange(label, before, after, tuple((kind, line) for line in new or old))
    kinds = {"+": "added", "-": "removed", "@": "gap"}
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    return ValueChange(
        label, before, after,
        tuple((kinds.get(line[:1], "same"), "⋯" if line[:1] == "@" else line[1:]) for line in lines),
    )  # fmt: skip


def _object_url(row: Audit, live: set[tuple[str, str]]) -> str:
    """Return the URL of the object's own page or list page, or "" if there is none."""
    is_live = (row.object_type, row.object_id) in live
    match row.object_type:
        case "workload" | "workloadarray":
            route = "workload" if row.object_type == "workload" else "array"
            return reverse(route, args=[row.object_id]) if is_live else ""
        case "template" | "schedule":
            return reverse(row.object_type, args=row.object_name.split("/")) if is_live else ""
        case "node":
            return reverse("node", args=[row.object_name]) if is_live else ""
        case "nodepool":
            return reverse("node-pool", args=[row.object_name]) if is_live else ""
        case "quota" | "quotagroup":
            return f"{reverse('quotas')}?pool={row.object_name.rpartition(' ')[2]}"
        case "budget":
            return reverse("usage")
        case "projectsecret":
            return reverse("secrets")
        case "service" | "autoscaler":
            return reverse("services")
        case "user" | "apitoken":
            return reverse("access")
        case "subscription":
            return reverse("notifications")
        case "project" if row.action in ("create", "edit"):
            return f"{reverse('workloads')}?project={row.object_name}&state=all"
    return ""
