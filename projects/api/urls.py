"""Here we say where tenants, people and what they ask for are found."""

from django.urls import URLPattern, URLResolver, path

from projects.api import (
    deliveries,
    departments,
    history,
    members,
    people,
    pods,
    projects,
    quota_changes,
    quotas,
    workloads,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("login", people.Login.as_view()),
    path("whoami", people.Whoami.as_view()),
    path("tokens", people.Tokens.as_view()),
    path("tokens/<int:token_id>", people.OneToken.as_view()),
    path("departments", departments.Departments.as_view()),
    path("departments/<str:name>", departments.OneDepartment.as_view()),
    path("projects", projects.Projects.as_view()),
    path("projects/<str:name>", projects.OneProject.as_view()),
    path("quotas", quotas.Quotas.as_view()),
    path("quotas/departments/<str:name>/<str:pool>", quotas.DepartmentQuota.as_view()),
    path("quotas/projects/<str:name>/<str:pool>", quotas.ProjectQuota.as_view()),
    path("quotas/apply", quota_changes.ApplyQuotas.as_view()),
    path("quotas/changes", quota_changes.QuotaChanges.as_view()),
    path("quotas/changes/<int:change_id>", quota_changes.OneQuotaChange.as_view()),
    path("quotas/changes/<int:change_id>/undo", quota_changes.UndoQuotaChange.as_view()),
    path("members", members.Members.as_view()),
    path("members/<int:member_id>", members.OneMember.as_view()),
    path("users", members.Users.as_view()),
    path("workloads/<uuid:workload_id>", workloads.OneWorkload.as_view()),
    path("workloads/<uuid:workload_id>/cancel", workloads.Cancel.as_view()),
    path("workloads/<uuid:workload_id>/suspend", workloads.Suspend.as_view()),
    path("workloads/<uuid:workload_id>/resume", workloads.Resume.as_view()),
    path("workloads/<uuid:workload_id>/pods", pods.PodsOfWorkload.as_view()),
    path("workloads/<uuid:workload_id>/events", history.EventsOfWorkload.as_view()),
    path("workloads/<uuid:workload_id>/deliveries", deliveries.DeliveriesOfWorkload.as_view()),
    path("pods", pods.Pods.as_view()),
    path("events", history.Events.as_view()),
    path("audit", history.AuditTrail.as_view()),
]
