"""Apply retry rules to workload rows."""

import uuid
from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from berth.core.spec.sections.retry import role_memory
from pools.models import Node
from projects.engine.retries import Failure, Retry, RetryState, decide_retry
from projects.models import Phase, Workload, WorkloadRole
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.engine.backoff import backoff_seconds
from scheduler.loop.observe.specs import ParsedSpec

MAX_AVOIDED = 1000  # maximum number of avoided nodes; the oldest entries are dropped


def retry_state(workload: Workload, parsed: ParsedSpec) -> RetryState:
    """Return the workload's retry rules, its restart count and the memory of each role."""
    spec = parsed.spec
    if spec is None:
        return RetryState()
    memory = {role.name: role_memory(role) for role in spec.all_roles}
    return RetryState(spec.retry_rules, workload.retries, memory)


def node_names(failures: Iterable[Failure | None]) -> dict[int, str]:
    """Return the names of the nodes where the failures occurred, using at most one query."""
    nodes = {failure.node for failure in failures if failure is not None and failure.node is not None}
    return dict(Node.objects.filter(pk__in=nodes).values_list("pk", "name")) if nodes else {}


def transition_after_failure(
    workload: Workload,
    parsed: ParsedSpec,
    failure: Failure,
    reason: str,
    message: str,
    now: datetime,
    names: Mapping[int, str],
) -> PhaseTransition:
    """Return the transition of a locked, active workload whose run has failed: the workload either restarts
    or fails.
    """
    decision = decide_retry(retry_state(workload, parsed), failure)
    text = " ".join(filter(None, [message, decision.sentence]))
    columns: dict[str, Any] = {"next_phase": Phase.FAILED}
    retry = decision if isinstance(decision, Retry) else None
    if retry is not None:
        reason = "Restarting"
        columns = {"next_phase": Phase.PENDING, **failure_columns(workload, failure, retry, now, names)}
    data = {"run": workload.run, **failure_event_data(failure, retry)}
    return PhaseTransition(
        workload, [workload.phase], Phase.STOPPING, reason, text, data=data, columns=columns
    )


def failure_columns(
    workload: Workload, failure: Failure, retry: Retry | None, now: datetime, names: Mapping[int, str]
) -> dict[str, Any]:
    """Return the new values of the columns that change when a locked workload fails."""
    counts = {**workload.retries, failure.kind: workload.retries.get(failure.kind, 0) + 1}
    columns: dict[str, Any] = {"retries": counts}
    if retry is None:
        return columns
    restarts = workload.restarts + 1
    seconds = backoff_seconds(restarts) if retry.backoff is None else retry.backoff
    columns |= {"restarts": restarts, "backoff_until": now + timedelta(seconds=seconds)}
    node = None if failure.node is None else names.get(failure.node)
    if retry.other_node and node is not None:
        others = [name for name in workload.avoided_nodes if name != node]
        columns["avoided_nodes"] = [*others, node][-MAX_AVOIDED:]
    if retry.memory is not None:
        columns |= {
            "spec": with_more_memory(workload.spec, failure.role, retry.memory), "edits": workload.edits + 1
        }  # fmt: skip
    return columns


def peer_failure_columns(count: int, now: datetime) -> dict[str, Any]:
    """Return the new values of the columns that change when a workload is requeued after losing a peer
    `count` times in a row.
    """
    delay = timedelta(seconds=backoff_seconds(count - 1)) if count > 1 else None
    return {"peer_failures": count, "backoff_until": now + delay if delay else None}


def failure_event_data(failure: Failure | None, retry: Retry | None) -> dict[str, Any]:
    """Return the failure details for the transition's event."""
    if failure is None:
        return {}
    data: dict[str, Any] = {"failure": failure.kind}
    if retry is not None:
        data |= {"restart": retry.number, "max_restarts": retry.limit}
        data |= {"role": failure.role, "memory_mib": retry.memory} if retry.memory is not None else {}
    return data


def with_more_memory(document: Mapping[str, Any], role: str, memory_mib: int) -> dict[str, Any]:
    """Return the document with a role's memory request or limit raised.

    If the two differ, their ratio is kept.
    """
    grown = deepcopy(dict(document))
    for each in _leaf_roles(grown):
        if each.get("name", "worker") != role:
            continue
        request, limit = each.get("memory_mib", 0), each.get("limit", {}).get("memory_mib") or 0
        largest = max(request, limit)
        if request:
            each["memory_mib"] = -(-request * memory_mib // largest)
        if limit:
            each["limit"]["memory_mib"] = -(-limit * memory_mib // largest)
    return grown


def _leaf_roles(node: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    yield from node.get("roles") or ()
    for group in node.get("groups") or ():
        yield from _leaf_roles(group)


def store_increased_memory(retries: Iterable[tuple[uuid.UUID, Retry]]) -> None:
    """Copy increased memory requests from documents to role rows, with three SQL statements."""
    grown = {pk: retry.failure.role for pk, retry in retries if retry.memory is not None}
    if not grown:
        return
    documents = dict(Workload.objects.filter(pk__in=grown).values_list("pk", "spec"))
    named = WorkloadRole.objects.filter(workload__in=grown, name__in=set(grown.values()))
    rows = [row for row in named.only("workload_id", "name") if row.name == grown[row.workload_id]]
    for row in rows:
        roles = _leaf_roles(documents[row.workload_id])
        row.memory_mib = next(
            role.get("memory_mib", 0) for role in roles if role.get("name", "worker") == row.name
        )
    WorkloadRole.objects.bulk_update(rows, ["memory_mib"])
