"""Queries for join tokens and joined machines."""

from datetime import datetime
from typing import Any, Literal

from django.db.models import Case, CharField, Count, F, OuterRef, QuerySet, Subquery, Value, When

from pools.models import JoinToken, JoinTokenUse, Machine, MachineUse, Node, NodePool
from pools.models.node import NodeState
from pools.providers.static import SILENT_AFTER, instance_id

TokenState = Literal["open", "used", "revoked", "expired"]
MachineState = Literal["free", "used", "draining", "silent", "departed"]


def join_tokens(pool: NodePool, now: datetime) -> QuerySet[Any]:
    """Return the pool's join tokens, newest first, annotated with `state` and `machines_joined`."""
    state = Case(
        When(revoked_at__isnull=False, then=Value("revoked")),
        When(machines_joined__gte=F("max_machines"), then=Value("used")),
        When(expires_at__lte=now, then=Value("expired")),
        default=Value("open"),
        output_field=CharField(),
    )
    rows = JoinToken.objects.filter(pool=pool).annotate(machines_joined=Count("uses"))
    return rows.annotate(state=state).select_related("pool").order_by("-issued_at", "-pk")


def machines(pool: NodePool, now: datetime) -> QuerySet[Any]:
    """Return the pool's machines ordered by name, annotated with `state`, `use_key` and `token_prefix`."""
    use = MachineUse.objects.filter(machine=OuterRef("pk"), ended_at=None)
    state = Case(
        When(departed_at__isnull=False, then=Value("departed")),
        When(removed_at__isnull=False, then=Value("draining")),
        When(last_seen_at__lte=now - SILENT_AFTER, then=Value("silent")),
        When(use_key__isnull=False, then=Value("used")),
        default=Value("free"),
        output_field=CharField(),
    )
    tokens = JoinTokenUse.objects.filter(machine=OuterRef("pk")).order_by("-used_at", "-pk")
    rows = Machine.objects.filter(pool=pool).annotate(
        use_key=Subquery(use.values("pk")[:1]), token_prefix=Subquery(tokens.values("token__prefix")[:1])
    )
    rows = rows.annotate(state=state)
    return rows.select_related("pool").order_by("name", "pk")


def current_node_names(machines: "list[Machine]") -> dict[int, str]:
    """Return the names of the machines' current nodes, by primary key of the machine."""
    uses = MachineUse.objects.filter(machine__in=machines, ended_at=None).select_related("machine")
    machine_by_instance = {instance_id(use): use.machine_id for use in uses}
    living = Node.objects.filter(instance_id__in=machine_by_instance).exclude(state=NodeState.ENDED)
    return {
        machine_by_instance[instance]: name for instance, name in living.values_list("instance_id", "name")
    }
