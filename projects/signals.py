"""Signals about changes, sent after the commit.

Every announcement carries ids only: who listens reads the rows with the rights of whom it serves.
"""

from django.dispatch import Signal

workload_changed = Signal()  # workload_id, project_id, department_id
tenants_changed = Signal()  # department_id | None, project_id | None: tenants, quotas, members
