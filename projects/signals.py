"""Change signals, sent after the commit.

Every signal carries only IDs. Receivers read the rows with the permissions of the user they act for.
"""

from django.dispatch import Signal

workload_changed = Signal()  # arguments: workload_id, project_id, department_id
# Sent for tenants, quotas and members. Arguments: department_id | None, project_id | None.
tenants_changed = Signal()
