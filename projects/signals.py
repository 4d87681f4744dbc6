"""Change signals, sent after the transaction commits.

Every signal carries only IDs. Receivers read the rows with the permissions of the user on whose behalf they
act.
"""

from django.dispatch import Signal

# Sent when workloads change. Arguments: workload_ids (never empty), project_id and department_id.
workloads_changed = Signal()
# Sent when anything that belongs to departments or projects changes, such as quotas, members or schedules,
# except for workloads. Arguments: department_id and project_id, which may be None.
tenants_changed = Signal()
