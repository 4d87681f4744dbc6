"""Pass fetched code and fetch errors to the workloads that wait for them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from berth.core.errors import BerthError
from berth.core.wording.words import format_count
from berth.db.loops.crash_points import crash_point
from berth.db.loops.wake import wake
from projects.code.git import FetchedCommit, GitFailure, GitRejection
from projects.models import CodeFetch, Phase, SecretUse, SecretValue, UserSecret, Workload
from projects.services import announce, events
from projects.services.arrays.progress import lock_task_arrays
from projects.services.code import write_tree
from projects.services.code_fetches import ReadKey, waiting_message
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases

ACTOR = "scheduler"
FETCHED_EVENT, FAILED_REASON = "code_fetched", "CodeFetchFailed"
ATTEMPTS = 6
ERROR_MAX = 1000  # maximum length of an error message; each workload of the request stores a copy
FIRST_DELAY, MAX_DELAY = timedelta(seconds=5), timedelta(minutes=2)
WAITING_PHASES = (Phase.PENDING, Phase.SUSPENDED)  # phases in which a workload can wait for its code


def finish_fetch(fetch: CodeFetch, key: ReadKey, commit: FetchedCommit, now: datetime) -> None:
    """Assign the fetched code to the workloads that wait for it.

    The chunks must already be stored. Raises Conflict if the project exceeds its storage limit.
    """
    if not _lock_fetch(fetch):
        return
    tree = write_tree(fetch.project, commit.files, now)
    assert tree is not None
    workloads = _lock_workloads(fetch)
    _record_secret_uses(fetch, key, workloads, now)
    version = key.secret.version if key.secret is not None else None
    CodeFetch.objects.filter(pk=fetch.pk).update(
        state=CodeFetch.State.FETCHED, commit=commit.commit, branch=commit.branch, tree=tree,
        secret_version=version, error="", retry_at=None, ended_at=now,
    )  # fmt: skip
    pks = [workload.pk for workload in workloads]
    columns: dict[str, Any] = {"code": tree, "code_wait": "", "version": F("version") + 1}
    Workload.objects.filter(pk__in=pks).update(**columns)
    message = _fetch_summary(fetch, commit)
    data = {"url": fetch.section["url"], "commit": commit.commit}
    events.record_all(
        events.build(FETCHED_EVENT, workload, message, actor=ACTOR, data=data) for workload in workloads
    )
    crash_point("code.fetched")
    _announce(workloads)


def postpone_fetch(fetch: CodeFetch, error: str, now: datetime) -> None:
    """Record a failed attempt to fetch the code.

    After the last attempt, fail the workloads that wait for it.
    """
    if not _lock_fetch(fetch):
        return
    attempts = fetch.attempts + 1
    if attempts >= ATTEMPTS:
        fail_fetch(fetch, f"{error} Berth tried {attempts} times.", now)
        return
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** (attempts - 1))
    CodeFetch.objects.filter(pk=fetch.pk).update(attempts=attempts, retry_at=now + delay, error=error)
    workloads = _lock_workloads(fetch)
    pks = [workload.pk for workload in workloads]
    Workload.objects.filter(pk__in=pks).update(
        code_wait=f"{waiting_message(fetch.section['url'])} {error} Berth tries again."
    )
    _announce(workloads)


def fail_fetch(fetch: CodeFetch, error: str, now: datetime) -> None:
    """Fail the request's workloads, except suspended ones, whose code is requested again when they are
    resumed.
    """
    if not _lock_fetch(fetch):
        return
    workloads = _lock_workloads(fetch)
    suspended = [workload.pk for workload in workloads if workload.phase == Phase.SUSPENDED]
    if suspended:
        again = CodeFetch.objects.create(
            project=fetch.project,
            requested_by_id=fetch.requested_by_id,
            section=fetch.section,
            created_at=now,
        )
        Workload.objects.filter(pk__in=suspended).update(code_fetch=again)
    CodeFetch.objects.filter(pk=fetch.pk).update(state=CodeFetch.State.FAILED, error=error, ended_at=now)
    transitions = [
        PhaseTransition(
            workload, [Phase.PENDING], Phase.FAILED, FAILED_REASON, error, columns={"explanation": None}
        )
        for workload in workloads
        if workload.phase == Phase.PENDING
    ]
    if transitions:
        change_phases(transitions, actor=ACTOR, now=now)
        wake("scheduler")


def _lock_fetch(fetch: CodeFetch) -> bool:
    """Lock the fetch request. Return False if another leader has already handled it."""
    rows = CodeFetch.objects.select_for_update(of=("self",))
    return rows.filter(pk=fetch.pk, state=CodeFetch.State.WAITING).exists()


def _lock_workloads(fetch: CodeFetch) -> Sequence[Workload]:
    """Lock and return the workloads that still wait for the fetched code. Lock their arrays first."""
    assert transaction.get_connection().in_atomic_block
    rows = Workload.objects.filter(code_fetch=fetch, phase__in=WAITING_PHASES)
    lock_task_arrays(list(rows.values_list("pk", flat=True)))
    locked = rows.select_for_update(of=("self",)).select_related("project__department", "submitted_by")
    return list(locked.order_by("pk"))


def _record_secret_uses(fetch: CodeFetch, key: ReadKey, workloads: Sequence[Workload], now: datetime) -> None:
    secret = key.secret
    if secret is None or not workloads:
        return
    is_personal = isinstance(secret, UserSecret)
    value, _ = SecretValue.objects.update_or_create(
        kind=SecretValue.Kind.USER if is_personal else SecretValue.Kind.PROJECT,
        secret=secret.pk,
        version=secret.version,
        defaults={"used_at": now},
        create_defaults={"used_at": now, "sealed": secret.sealed},
    )
    owner = secret.user.get_username() if isinstance(secret, UserSecret) else fetch.project.name
    kind = SecretUse.Owner.USER if is_personal else SecretUse.Owner.PROJECT
    common = {"owner_kind": kind, "owner": owner, "name": secret.name, "version": secret.version, "at": now}
    uses = [SecretUse(workload=each, run=each.run, value=value, **common) for each in workloads]
    SecretUse.objects.bulk_create(uses, ignore_conflicts=True)


def _fetch_summary(fetch: CodeFetch, commit: FetchedCommit) -> str:
    message = (
        f"Fetched {format_count(len(commit.files), 'file')} of commit {commit.commit[:10]} from {fetch}."
    )
    if commit.submodules:
        message += f" They do not include {format_count(commit.submodules, 'submodule')} of the repository."
    return message


def _announce(workloads: Sequence[Workload]) -> None:
    if workloads:
        announce.workloads_changed(workloads)
        wake("scheduler")


def error_text(error: Exception) -> str:
    """Convert an error to a sentence.

    Fetch errors are sentences already. They are not capitalized, because they may begin with a host name.
    """
    if isinstance(error, GitRejection | GitFailure):
        return str(error)[:ERROR_MAX]
    text = str(error.detail if isinstance(error, BerthError) else error).strip()[:ERROR_MAX]
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
