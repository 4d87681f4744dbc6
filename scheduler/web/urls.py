"""URL routes of the scheduler pages."""

from django.urls import path, re_path

from projects.web.urls import TENANT
from scheduler.web import (
    evictions,
    line,
    log,
    pools,
    quota_answers,
    quota_history,
    quota_impact,
    quotas,
    share_page,
    shares,
    submit,
    templates,
    usage,
    use,
    workload,
)

urlpatterns = [
    path("submit", submit.index, name="submit"),
    path("submit/foreseen", submit.foreseen, name="submit-foreseen"),
    path("templates", templates.index, name="templates"),
    path("templates/keep", templates.keep, name="template-keep"),
    path("templates/<slug:project>/new", templates.edit, name="template-new"),
    path("templates/<slug:project>/<slug:name>/edit", templates.edit, name="template"),
    path("templates/<slug:project>/<slug:name>/remove", templates.remove, name="template-remove"),
    path("workloads/<uuid:workload_id>", workload.detail, name="workload"),
    path("workloads/<uuid:workload_id>/log", log.read, name="workload-log"),
    path("workloads/<uuid:workload_id>/log/pods", log.pods_of, name="workload-log-pods"),
    path("workloads/<uuid:workload_id>/log/search", log.find, name="workload-log-search"),
    path("workloads/<uuid:workload_id>/log/download", log.download, name="workload-log-download"),
    path("workloads/<uuid:workload_id>/use", use.of_workload, name="workload-use"),
    path("nodes/<str:name>/use", use.of_node, name="node-use"),
    path("quotas", quotas.index, name="quotas"),
    path("quotas/answer", quota_answers.answer, name="quota-answer"),
    path("quotas/news", quota_answers.news, name="quota-news"),
    path("quotas/changes", quota_history.index, name="quota-changes"),
    path("quotas/changes/<int:change_id>/undo", quota_history.take_back, name="quota-undo"),
    re_path(rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)/preview$", quota_impact.impact, name="quota-impact"),
    re_path(rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)/share$", shares.why, name="share"),
    path("node-pools", pools.index, name="node-pools"),
    path("node-pools/<slug:name>", pools.detail, name="node-pool"),
    path("fair-share", share_page.index, name="fair-share"),
    path("queue", line.index, name="queue"),
    path("usage", usage.index, name="usage"),
    path("evictions", evictions.index, name="evictions"),
    path("evictions/<int:eviction_id>", evictions.detail, name="eviction"),
]
