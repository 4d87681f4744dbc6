"""Errors for missing or hidden objects, with a suggestion or a command that lists the visible objects."""

import re
from collections.abc import Iterable
from enum import Enum
from uuid import UUID

from berth.core.errors import NotFound
from berth.core.problems import SUGGESTION, closest_match, format_value

COMMAND_SENTENCE = re.compile(r" [^.`]*`berth [^`]*`[^.]*\.")


class ObjectKind(Enum):
    """Kind of object that can be missing.

    Each value holds the beginning of the error message and a remedy. `{owner}` stands for the object that the
    missing object would belong to.
    """

    ARRAY = "There is no array", "List arrays with `berth list --all`."
    CYCLE = "There is no scheduling cycle", "List cycles with `berth cycles`."
    DELIVERY = (
        "Subscription {owner} has no delivery",
        "List deliveries with `berth subscription deliveries {owner}`.",
    )
    DEPARTMENT = "There is no department", "List departments with `berth department list`."
    EVICTION = "There is no eviction", "List evictions with `berth evictions -o json`."
    JOIN_TOKEN = "Pool {owner} has no join token", "List join tokens with `berth machine token list {owner}`."
    MACHINE = "Pool {owner} has no machine", "List machines with `berth machine list {owner} --all`."
    MEMBER = "There is no member", "List members with `berth member list -o json`."
    NODE = "There is no node", "List nodes with `berth node list`."
    PERSONAL_SECRET = "You have no personal secret", "List your secrets with `berth secret list --personal`."
    POOL = "There is no node pool", "List pools with `berth pool list`."
    POOL_OR_GROUP = (
        "There is no node pool or quota group",
        "List pools with `berth pool list` and quota groups with `berth quota group list`.",
    )
    POOL_SECRET = "Pool {owner} has no secret", "List secrets with `berth secret list --pool {owner}`."
    PROJECT = "There is no project", "List projects with `berth project list`."
    PROJECT_SECRET = (
        "Project {owner} has no secret",
        "List secrets with `berth secret list --project {owner}`.",
    )
    QUOTA_CHANGE = "There is no quota change", "List quota changes with `berth quota history`."
    QUOTA_GROUP = "There is no quota group", "List quota groups with `berth quota group list`."
    SCALE_IN = (
        "Service {owner} has no scale-in request",
        "List requests with `berth service history {owner}`.",
    )
    SCALE_OUT = (
        "Service {owner} has no scale-out request",
        "List requests with `berth service history {owner}`.",
    )
    SCHEDULE = (
        "Project {owner} has no schedule",
        "List schedules with `berth schedule list --project {owner}`.",
    )
    SERVICE = "There is no service", "List services with `berth service list --all`."
    SSH_HOST = "Pool {owner} has no SSH host", "List hosts with `berth pool host list {owner}`."
    SUBSCRIPTION = "There is no subscription", "List subscriptions with `berth subscription list`."
    TEMPLATE = (
        "Project {owner} has no template",
        "List templates with `berth template list --project {owner}`.",
    )
    TOKEN = "There is no token", "List your tokens with `berth token list --all`."
    USER = "There is no user", "List the users that you administer with `berth user list`."
    WORKLOAD = "There is no workload", "List workloads with `berth list --all`."


def not_found_error(
    kind: ObjectKind,
    *,
    name: str | None = None,
    object_id: UUID | int | str | None = None,
    owner: object = "",
    visible: Iterable[str] = (),
) -> NotFound:
    """Return the error for an unknown name or ID.

    The error suggests the closest name in `visible`, which must contain only names that the user may see.
    """
    beginning, advice = (text.format(owner=owner) for text in kind.value)
    if name is None:
        reference = f"with the ID {format_value(object_id) if isinstance(object_id, str) else object_id}"
        return NotFound(f"{beginning} {reference}. {advice}")
    if match := closest_match(name, visible):
        advice = f"{SUGGESTION}`{match}`?"
    return NotFound(f"{beginning} named {format_value(name)}. {advice}")


def remove_cli_suggestions(detail: str) -> str:
    """Return the text without sentences that suggest CLI commands, for use on web pages."""
    return COMMAND_SENTENCE.sub("", detail)
