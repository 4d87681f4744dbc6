"""Actions on the selected rows of the queue page."""

from collections.abc import Sequence
from typing import Any

from projects.actor import Actor
from projects.services.arrays import count_tasks_by_array
from projects.services.workloads import editable_workloads
from projects.web.workloads.actions import set_bulk_actions


def set_row_actions(actor: Actor, rows: Sequence[Any]) -> None:
    """Set the bulk actions of each row, and whether its workload can be edited.

    The actions on a row with several tasks of an array apply to the array.
    """
    for row in rows:
        has_several = row.array_id is not None and getattr(row, "queued_tasks", True) is not None
        row.selected_array = row.array if has_several else None
    arrays = {row.array_id: row.selected_array for row in rows if row.selected_array is not None}
    counts = count_tasks_by_array(list(arrays.values())) if arrays else {}
    editable = editable_workloads(rows)
    for row in rows:
        set_bulk_actions(actor, row, row.selected_array or row, counts.get(row.array_id))
        row.is_editable = row.is_operable and row.pk in editable
