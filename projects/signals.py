"""Signals about changes, sent after the commit.

Every signal carries only ids. Receivers read the rows with the permissions of their user.
"""

from django.dispatch import Signal

workload_changed = Signal()  # workload_id, project_id, department_id
tenants_changed = Signal()  # department_id | None, project_id | None: tenants, quotas, members
