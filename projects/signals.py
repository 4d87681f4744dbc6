"""Change signals, sent after the transaction commits.

Every signal carries only IDs. Receivers read the rows with the permissions of their user.
"""

from django.dispatch import Signal

# Sent when workloads change. Arguments: workload_ids (never empty), project_id and department_id.
workloads_changed = Signal()
# Sent when departments or projects change, including their quotas, members and schedules.
# Not sent for workloads. Arguments: department_id and project_id, which may be None.
tenants_changed = Signal()
