"""URL routes for the scheduler API."""

from django.urls import URLPattern, URLResolver, path

from scheduler.api import (
    budgets,
    cycles,
    evictions,
    explanations,
    fragmentation,
    health,
    pool_diagnosis,
    queue_list,
    quota_previews,
    quotas,
    usage,
    utilization,
)
from scheduler.api.files import endpoint as files
from scheduler.api.logs import endpoint as logs
from scheduler.api.logs import search as log_search

urlpatterns: list[URLPattern | URLResolver] = [
    path("workloads/<uuid:workload_id>/explain", explanations.WorkloadExplanation.as_view()),
    path("workloads/<uuid:workload_id>/smallest-change", explanations.WorkloadSmallestChange.as_view()),
    path("workloads:smallest-change", explanations.DocumentSmallestChange.as_view()),
    path("scheduler/health", health.Health.as_view()),
    path("workloads/<uuid:workload_id>/logs", logs.Logs.as_view()),
    path("workloads/<uuid:workload_id>/logs/search", log_search.SearchLogs.as_view()),
    path("workloads/<uuid:workload_id>/files", files.WorkloadFiles.as_view()),
    path("workloads/<uuid:workload_id>/files/download", files.DownloadWorkloadFiles.as_view()),
    path("workloads/<uuid:workload_id>/evictions", evictions.WorkloadEvictions.as_view()),
    path("evictions", evictions.Evictions.as_view()),
    path("evictions/matrix", evictions.EvictionMatrix.as_view()),
    path("evictions/<int:eviction_id>", evictions.EvictionDetail.as_view()),
    path("quotas/preview", quota_previews.QuotaPreview.as_view()),
    path("quota-groups/<str:name>/preview", quota_previews.QuotaGroupPreview.as_view()),
    path("quotas/departments/<str:name>/<str:pool>", quotas.DepartmentQuota.as_view()),
    path("quotas/projects/<str:name>/<str:pool>", quotas.ProjectQuota.as_view()),
    path("quotas/departments/<str:name>/<str:pool>/share", quotas.DepartmentShareTrace.as_view()),
    path("quotas/projects/<str:name>/<str:pool>/share", quotas.ProjectShareTrace.as_view()),
    path("node-pools/<str:name>/fragmentation", fragmentation.Fragmentation.as_view()),
    path("node-pools/<str:name>/diagnosis", pool_diagnosis.PoolDiagnosis.as_view()),
    path("budgets", budgets.Budgets.as_view()),
    path("budgets/departments/<str:name>", budgets.DepartmentBudget.as_view()),
    path("budgets/projects/<str:name>", budgets.ProjectBudget.as_view()),
    path("utilization", utilization.ClusterUtilization.as_view()),
    path("utilization/nodes", utilization.NodeUtilizationList.as_view()),
    path("utilization/workloads", utilization.WorkloadUtilizationList.as_view()),
    path("nodes/<str:name>/utilization", utilization.NodeUtilizationDetail.as_view()),
    path("workloads/<uuid:workload_id>/utilization", utilization.WorkloadUtilizationDetail.as_view()),
    path("usage", usage.UsageReport.as_view()),
    path("node-pools/<str:name>/queue", queue_list.PoolQueue.as_view()),
    path("cycles", cycles.Cycles.as_view()),
    path("cycles/<int:cycle_id>", cycles.CycleDetail.as_view()),
    path("cycles/<int:cycle_id>/replay", cycles.Replay.as_view()),
]
