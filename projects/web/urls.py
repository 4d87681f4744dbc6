"""URL routes of the project pages."""

from django.urls import path, re_path

from projects.web import notifications, secrets
from projects.web.activity import page as activity
from projects.web.arrays import changes as array_changes
from projects.web.arrays import pages as arrays
from projects.web.people import access, account, all_tokens, tokens
from projects.web.quotas import budgets, tenants
from projects.web.quotas import groups as quota_groups
from projects.web.schedules import forms as schedule_forms
from projects.web.schedules import pages as schedules
from projects.web.services import forms as service_forms
from projects.web.services import pages as services
from projects.web.workloads import bulk, ports
from projects.web.workloads import pages as workloads
from projects.web.workloads.listing import saved_views, submitters

TENANT = "(?P<kind>departments|projects)/(?P<name>[a-z0-9-]{1,63})"

urlpatterns = [
    re_path(
        r"^workloads/(?P<action_name>cancel|suspend|resume|retry|resubmit|delete)$",
        bulk.apply_to_selection,
        name="workloads-action",
    ),
    path("workloads/submitters", submitters.suggest, name="workload-submitters"),
    path("workloads/views/new", saved_views.save, name="view-new"),
    path("workloads/views/<int:view_id>/delete", saved_views.delete, name="view-delete"),
    path("workloads", workloads.index, name="workloads"),
    path("arrays/<uuid:array_id>", arrays.detail, name="array"),
    path("arrays/<uuid:array_id>/spec", arrays.show_spec, name="array-spec"),
    path("arrays/<uuid:array_id>/worst", array_changes.cancel_worst, name="array-worst"),
    path("arrays/<uuid:array_id>/delete", array_changes.delete, name="array-delete"),
    re_path(
        r"^arrays/(?P<array_id>[0-9a-f-]{36})/(?P<action_name>cancel|retry|suspend|resume)$",
        array_changes.change,
        name="array-action",
    ),
    re_path(
        r"^workloads/(?P<workload_id>[0-9a-f-]{36})/(?P<action_name>cancel|suspend|resume|delete)$",
        workloads.apply_action,
        name="workload-action",
    ),
    path("workloads/<uuid:workload_id>/ports/<str:port>", ports.open_port, name="port-open"),
    path("quota-groups/new", quota_groups.add, name="quota-group-new"),
    path("quota-groups/<slug:name>/edit", quota_groups.edit, name="quota-group-edit"),
    path("quota-groups/<slug:name>/delete", quota_groups.delete, name="quota-group-delete"),
    path("budgets/new", budgets.add, name="budget-new"),
    re_path(rf"^budgets/{TENANT}$", budgets.edit, name="budget"),
    re_path(rf"^budgets/{TENANT}/delete$", budgets.delete, name="budget-delete"),
    path("departments/new", tenants.add_department, name="department-new"),
    path("departments/<slug:name>/new-project", tenants.add_project, name="project-new"),
    re_path(rf"^{TENANT}/change$", tenants.change, name="tenant"),
    re_path(rf"^{TENANT}/delete$", tenants.delete, name="tenant-delete"),
    path("activity", activity.index, name="activity"),
    path("account", account.index, name="account"),
    path("account/password", account.password, name="password"),
    path("account/sessions/end", account.end_other_sessions, name="end-sessions"),
    path("access", access.index, name="access"),
    path("notifications", notifications.index, name="notifications"),
    path("notifications/new", notifications.add, name="notification-new"),
    path("notifications/<int:subscription_id>/edit", notifications.edit, name="notification-edit"),
    path("notifications/<int:subscription_id>/test", notifications.send_test, name="notification-test"),
    path("notifications/deliveries/<int:delivery_id>/resend", notifications.resend, name="delivery-resend"),
    path("notifications/<int:subscription_id>/delete", notifications.delete, name="notification-delete"),
    path("secrets", secrets.index, name="secrets"),
    re_path(r"^secrets/new/(?P<kind>value|registry|s3_key)$", secrets.add, name="secret-new"),
    re_path(
        r"^secrets/(?P<kind>project|pool|user)/(?P<owner>[a-z0-9_-]+)/(?P<name>[a-zA-Z0-9_.-]+)/uses$",
        secrets.uses,
        name="secret-uses",
    ),
    re_path(
        r"^secrets/(?P<kind>project|pool|user)/(?P<owner>[a-z0-9_-]+)/(?P<name>[a-z0-9-]+)/delete$",
        secrets.delete,
        name="secret-delete",
    ),
    path("access/grant", access.grant, name="grant"),
    path("access/roles", access.role_options, name="role-options"),
    path("access/users/new", access.add_user, name="user-new"),
    re_path(
        r"^access/users/(?P<user_id>[0-9]{1,9})/(?P<action_name>deactivate|activate)$",
        access.set_active,
        name="user-action",
    ),
    path("access/members/<int:membership_id>/revoke", access.revoke, name="membership-revoke"),
    re_path(r"^access/users/(?P<user_id>[0-9]{1,9})$", all_tokens.user, name="user"),
    path("access/tokens", all_tokens.index, name="access-tokens"),
    path("access/tokens/new", tokens.issue, name="token-new"),
    path("access/tokens/<int:token_id>/revoke", tokens.revoke, name="token-revoke"),
    path("schedules", schedules.index, name="schedules"),
    path("schedules/times", schedule_forms.preview_times, name="schedule-times"),
    path("schedules/templates", schedule_forms.template_options, name="schedule-templates"),
    path("schedules/new", schedule_forms.add, name="schedule-new"),
    path("schedules/<slug:project>/<slug:name>", schedules.detail, name="schedule"),
    path("schedules/<slug:project>/<slug:name>/edit", schedule_forms.edit, name="schedule-edit"),
    re_path(
        r"^schedules/(?P<project>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)/(?P<action_name>pause|resume|run|delete)$",
        schedules.apply_action,
        name="schedule-action",
    ),
    path("services", services.index, name="services"),
    path("services/<str:service>", services.detail, name="service"),
    path("services/<str:service>/scale-out", service_forms.scale_out, name="service-out"),
    path("services/<str:service>/scale-in", service_forms.scale_in, name="service-in"),
    path("services/<str:service>/cancel/<str:request_id>", service_forms.cancel, name="service-cancel"),
    re_path(
        r"^services/(?P<service>[^/]+)/autoscaler/(?P<word>on|off)$",
        service_forms.switch_autoscaler,
        name="service-switch",
    ),
    path("services/<str:service>/autoscaler", service_forms.settings, name="service-autoscaler"),
]
