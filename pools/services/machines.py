"""Remove joined machines that run nothing."""

from datetime import datetime
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict
from pools import history
from pools.models import Machine, MachineUse, Node
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.static import instance_id, leave_for_good
from pools.services.nodes import warn_node
from pools.signals import changed


def remove_machine(*, acting: Any, machine: Machine, at: datetime, reason: str = "") -> bool:
    """True: it is gone. False: its node is drained first, and the machine goes with the node's end.

    Its provider says the same with each listing, so nobody takes the node back into use by mistake.
    """
    with transaction.atomic():
        machine = Machine.objects.select_for_update(of=("self",)).select_related("pool").get(pk=machine.pk)
        if machine.left_at is not None:
            raise Conflict(f"The machine {machine.name} has left the pool {machine.pool.name} already.")
        if machine.leaving_at is not None:
            return False
        machine.leaving_at = at
        machine.save(update_fields=["leaving_at"])
        told = f"the machine {machine.name} is removed by {acting.name}" + (f": {reason}" if reason else "")
        node = _node_of(machine)
        if node is None or not warn_node(node, reason=told[:255], leaves_at=None, at=at):
            history.write(machine.pool, ScalingKind.NOTICE, told, at=at, node=node, machine=machine.name)
        gone = leave_for_good(machine.pk, at)
        before, after = {"left": False}, {"left": gone, "reason": reason}
        changed.send(Machine, acting=acting, action="remove machine", obj=machine, before=before, after=after)
    return gone


def _node_of(machine: Machine) -> Node | None:
    use = MachineUse.objects.select_related("machine").filter(machine=machine, ended_at=None).first()
    living = Node.objects.select_related("pool").exclude(state__in=(NodeState.LOST, NodeState.ENDED))
    return living.filter(pool=machine.pool, instance_id=instance_id(use)).first() if use else None
