"""Requests to fetch workload code from Git servers.

A workload stays pending until its code has been fetched and the commit has been assigned to it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from berth.core.spec.sections.git import GitSpec
from berth.db.loops.wake import wake
from pools.models import SecretKind
from pools.models.secret import Secret
from projects.models import (
    CodeFetch,
    Phase,
    Project,
    ProjectSecret,
    UserSecret,
    Workload,
)
from projects.services.secrets import UnusableSecret, unseal_secret


@dataclass(frozen=True, slots=True)
class ReadKey:
    """Secret used by a fetch, with the secret's current value."""

    value: str = field(default="", repr=False)
    secret: Secret | None = field(default=None, repr=False)


def build_fetch(project: Project, spec: GitSpec, user_id: int | None, at: datetime) -> CodeFetch:
    """Return an unsaved fetch request for a Git repository in a document."""
    section = spec.model_dump(mode="json", exclude_defaults=True)
    return CodeFetch(project=project, requested_by_id=user_id, section=section, created_at=at)


def waiting_message(url: str) -> str:
    return f"Fetching code from {url}."


def store_fetches(workloads: Collection[Workload]) -> None:
    """Insert the fetch requests of new workloads. Must be called before the workloads are inserted."""
    new = {each.code_fetch_id: each.code_fetch for each in workloads if each.code_fetch_id is not None}
    fetches = [fetch for fetch in new.values() if fetch is not None and fetch._state.adding]
    if fetches:
        CodeFetch.objects.bulk_create(fetches)
        wake("code")


def copy_code(new: Workload, stored: Workload) -> None:
    """Copy the stored workload's code to `new`, so that both have the same commit."""
    new.code_id, new.code_fetch_id, new.code_wait = stored.code_id, stored.code_fetch_id, stored.code_wait


def next_fetch(now: datetime, running: Collection[UUID], full: Collection[int]) -> CodeFetch | None:
    """Return the due request with the fewest attempts, or None.

    Requests in `running` and all requests of projects in `full` are skipped.
    """
    needed = Workload.objects.filter(code_fetch=OuterRef("pk"), phase=Phase.PENDING)
    due = Q(retry_at__isnull=True) | Q(retry_at__lte=now)
    rows = CodeFetch.objects.filter(due, Exists(needed), state=CodeFetch.State.WAITING)
    others = rows.exclude(pk__in=running).exclude(project_id__in=full)
    return others.select_related("project").order_by("attempts", "created_at", "pk").first()


def read_key(fetch: CodeFetch) -> ReadKey:
    """Return the secret that the request refers to. Raises UnusableSecret if it does not exist."""
    section = fetch.section
    name = section.get("secret")
    if name is None:
        return ReadKey()
    secret: Secret | None
    if section.get("personal"):
        secret = (
            UserSecret.objects.select_related("user").filter(user=fetch.requested_by_id, name=name).first()
        )
        option = "--personal"
    else:
        kinds = (SecretKind.VALUE, SecretKind.SSH_KEY)
        secret = ProjectSecret.objects.filter(project=fetch.project, name=name, kind__in=kinds).first()
        option = f"--project {fetch.project.name}"
    if secret is None:
        raise UnusableSecret(
            f"The secret {name} does not exist. Set it with `berth secret set {name} {option}`."
        )
    return ReadKey(unseal_secret(secret), secret)


def delete_unused_fetches(before: datetime) -> int:
    """Delete requests created before `before` whose workloads have been deleted.

    Return the number of deleted requests.
    """
    unused = CodeFetch.objects.filter(~Exists(Workload.objects.filter(code_fetch=OuterRef("pk"))))
    return int(unused.filter(created_at__lt=before).delete()[0])
