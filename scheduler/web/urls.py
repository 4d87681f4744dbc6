"""URL routes for the scheduler's pages."""

from django.urls import path, re_path

from projects.web.urls import TENANT
from scheduler.web import decisions, evictions, fair_share, queue
from scheduler.web.pools import nodes as pool_nodes
from scheduler.web.pools import pages as pools
from scheduler.web.quotas import grid_changes, group_preview, history, preview, tree
from scheduler.web.submit import edit, resubmission, templates
from scheduler.web.submit import pages as submit
from scheduler.web.submit import smallest_change as submit_change
from scheduler.web.usage import pages as usage
from scheduler.web.utilization import pages as utilization
from scheduler.web.workloads import failure_line, metrics, terminal
from scheduler.web.workloads import pages as workloads
from scheduler.web.workloads.files import retained_files
from scheduler.web.workloads.logs import latest_error, log

urlpatterns = [
    path("submit", submit.index, name="submit"),
    path("submit/prediction", submit.prediction, name="submit-prediction"),
    path(
        "workloads/<uuid:workload_id>/edit/smallest-change",
        submit_change.smallest_change_for_edit,
        name="workload-edit-change",
    ),
    path("workloads/<uuid:workload_id>/resubmit", resubmission.resubmit, name="workload-resubmit"),
    path("submit/smallest-change", submit_change.smallest_change, name="submit-smallest-change"),
    path("templates", templates.index, name="templates"),
    path("templates/save", templates.save, name="template-save"),
    path("templates/<slug:project>/new", templates.edit, name="template-new"),
    path("templates/<slug:project>/<slug:name>/edit", templates.edit, name="template"),
    path("templates/<slug:project>/<slug:name>/delete", templates.delete, name="template-delete"),
    path("workloads/<uuid:workload_id>", workloads.detail, name="workload"),
    path("workloads/<uuid:workload_id>/logs", workloads.detail, {"tab": "logs"}, name="workload-logs"),
    path(
        "workloads/<uuid:workload_id>/terminal",
        workloads.detail,
        {"tab": "terminal"},
        name="workload-terminal",
    ),
    path("workloads/<uuid:workload_id>/terminal/pods", terminal.pods, name="workload-terminal-pods"),
    path(
        "workloads/<uuid:workload_id>/metrics", workloads.detail, {"tab": "metrics"}, name="workload-metrics"
    ),
    path("workloads/<uuid:workload_id>/metrics/charts", metrics.charts, name="workload-metric-charts"),
    path(
        "workloads/<uuid:workload_id>/outputs", workloads.detail, {"tab": "outputs"}, name="workload-outputs"
    ),
    path("workloads/<uuid:workload_id>/files/delete", retained_files.delete, name="workload-files-delete"),
    path(
        "workloads/<uuid:workload_id>/resources",
        workloads.detail,
        {"tab": "resources"},
        name="workload-resources",
    ),
    path(
        "workloads/<uuid:workload_id>/timeline",
        workloads.detail,
        {"tab": "timeline"},
        name="workload-timeline",
    ),
    path("workloads/<uuid:workload_id>/spec", workloads.detail, {"tab": "spec"}, name="workload-spec"),
    path("workloads/<uuid:workload_id>/edit", edit.edit, name="workload-edit"),
    path("workloads/<uuid:workload_id>/edit/prediction", edit.prediction, name="workload-edit-prediction"),
    path("workloads/<uuid:workload_id>/smallest-change", workloads.smallest_change, name="smallest-change"),
    path("workloads/<uuid:workload_id>/review-change", workloads.review_change, name="review-change"),
    path("workloads/<uuid:workload_id>/log", log.read, name="workload-log"),
    path("workloads/<uuid:workload_id>/log/times", log.times, name="workload-log-times"),
    path("workloads/<uuid:workload_id>/log/pods", log.pods, name="workload-log-pods"),
    path("workloads/<uuid:workload_id>/log/search", log.find_in_log, name="workload-log-search"),
    path("workloads/<uuid:workload_id>/log/errors", log.count_errors, name="workload-log-errors"),
    path("workloads/<uuid:workload_id>/log/failure-line", failure_line.show, name="workload-failure-line"),
    path("workloads/<uuid:workload_id>/log/latest-error", latest_error.show, name="workload-latest-error"),
    path("workloads/<uuid:workload_id>/log/download", log.download, name="workload-log-download"),
    path("workloads/<uuid:workload_id>/utilization", utilization.workload, name="workload-utilization"),
    path("nodes/<str:name>/contents", pool_nodes.show_contents, name="node-contents"),
    path("nodes/<str:name>/lost-work", pool_nodes.show_lost_work, name="node-lost-work"),
    path("nodes/<str:name>/utilization", utilization.node, name="node-utilization"),
    path("quotas", tree.index, name="quotas"),
    path("quotas/grid", grid_changes.preview_or_apply, name="quota-grid"),
    path("quotas/updates", grid_changes.changes_since, name="quota-updates"),
    path("quotas/changes", history.index, name="quota-changes"),
    path("quotas/changes/<int:change_id>/revert", history.revert_change, name="quota-revert"),
    path("quota-groups/<slug:name>/preview", group_preview.preview_pools, name="quota-group-preview"),
    re_path(rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)$", preview.edit_quota, name="quota"),
    re_path(rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)/delete$", preview.delete_quota, name="quota-delete"),
    re_path(rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)/preview$", preview.preview_quota, name="quota-preview"),
    re_path(
        rf"^quotas/{TENANT}/(?P<pool>[a-z0-9-]+)/share$", fair_share.explanation, name="fair-share-trace"
    ),
    path("node-pools", pools.index, name="node-pools"),
    path("node-pools/<slug:name>", pools.detail, name="node-pool"),
    path("fair-share", fair_share.index, name="fair-share"),
    path("queue", queue.index, name="queue"),
    path("usage", usage.index, name="usage"),
    path("decisions", decisions.index, name="decisions"),
    path("decisions/<int:cycle_id>", decisions.detail, name="decision"),
    path("decisions/<int:cycle_id>/replay", decisions.replay_cycle, name="decision-replay"),
    path("evictions", evictions.index, name="evictions"),
    path("evictions/<int:eviction_id>", evictions.detail, name="eviction"),
]
