"""URL routes of the projects API."""

from django.urls import URLPattern, URLResolver, path

from projects.api import account, departments, history, members, projects, subscriptions, templates
from projects.api.quotas import changes as quota_changes
from projects.api.quotas import views as quotas
from projects.api.services import autoscalers, scaling
from projects.api.services import views as services
from projects.api.sessions import calls, workers
from projects.api.sessions import views as sessions
from projects.api.workloads import pods, ports
from projects.api.workloads import views as workloads

urlpatterns: list[URLPattern | URLResolver] = [
    path("login", account.Login.as_view()),
    path("password", account.Password.as_view()),
    path("whoami", account.Whoami.as_view()),
    path("tokens", account.Tokens.as_view()),
    path("tokens/<int:token_id>", account.OneToken.as_view()),
    path("departments", departments.Departments.as_view()),
    path("departments/<str:name>", departments.OneDepartment.as_view()),
    path("projects", projects.Projects.as_view()),
    path("projects/<str:name>", projects.OneProject.as_view()),
    path("projects/<str:name>/templates", templates.TemplatesOfProject.as_view()),
    path("projects/<str:name>/templates/<str:template>", templates.OneTemplate.as_view()),
    path("templates", templates.Templates.as_view()),
    path("quotas", quotas.Quotas.as_view()),
    path("quotas/apply", quota_changes.ApplyQuotas.as_view()),
    path("quotas/changes", quota_changes.QuotaChanges.as_view()),
    path("quotas/changes/<int:change_id>", quota_changes.OneQuotaChange.as_view()),
    path("quotas/changes/<int:change_id>/revert", quota_changes.RevertQuotaChange.as_view()),
    path("subscriptions", subscriptions.Subscriptions.as_view()),
    path("subscriptions/<int:subscription_id>", subscriptions.OneSubscription.as_view()),
    path("subscriptions/<int:subscription_id>/deliveries", subscriptions.DeliveriesOfSubscription.as_view()),
    path("members", members.Members.as_view()),
    path("members/<int:member_id>", members.OneMember.as_view()),
    path("users", members.Users.as_view()),
    path("workloads", workloads.Workloads.as_view()),
    path("workloads/cancel", workloads.CancelMany.as_view()),
    path("workloads/<uuid:workload_id>", workloads.OneWorkload.as_view()),
    path("workloads/<uuid:workload_id>/cancel", workloads.Cancel.as_view()),
    path("workloads/<uuid:workload_id>/suspend", workloads.Suspend.as_view()),
    path("workloads/<uuid:workload_id>/resume", workloads.Resume.as_view()),
    path("workloads/<uuid:workload_id>/pods", pods.PodsOfWorkload.as_view()),
    path("workloads/<uuid:workload_id>/ports/<str:port>/link", ports.LinkToPort.as_view()),
    path("workloads/<uuid:workload_id>/events", history.EventsOfWorkload.as_view()),
    path("workloads/<uuid:workload_id>/deliveries", subscriptions.DeliveriesOfWorkload.as_view()),
    path("sessions", sessions.Sessions.as_view()),
    path("sessions/<uuid:workload_id>", sessions.OneSession.as_view()),
    path("sessions/<uuid:workload_id>/end", sessions.EndSession.as_view()),
    path("sessions/<uuid:workload_id>/calls", calls.Calls.as_view()),
    path("sessions/<uuid:workload_id>/calls/drop", calls.DropCalls.as_view()),
    path("sessions/<uuid:workload_id>/results", calls.Results.as_view()),
    path("workers/program.zip", workers.program),
    path("workers/hello", workers.Hello.as_view()),
    path("workers/orders", workers.Orders.as_view()),
    path("workers/results", workers.DoneCalls.as_view()),
    path("workers/leave", workers.LeaveSession.as_view()),
    path("pods", pods.Pods.as_view()),
    path("events", history.Events.as_view()),
    path("audit", history.AuditTrail.as_view()),
    path("services", services.Services.as_view()),
    path("services/<str:service>", services.OneService.as_view()),
    path("services/<str:service>/engines", services.EnginesOfService.as_view()),
    path("services/<str:service>/weights", services.WeightsOfService.as_view()),
    path("services/<str:service>/metrics", autoscalers.MetricsOfService.as_view()),
    path("services/<str:service>/scale_out", scaling.ScaleOuts.as_view()),
    path("services/<str:service>/scale_out/<str:request_id>", scaling.OneScaleOut.as_view()),
    path("services/<str:service>/scale_out/<str:request_id>/cancel", scaling.CancelScaleOut.as_view()),
    path("services/<str:service>/scale_out_cancel", scaling.CancelScaleOuts.as_view()),
    path("services/<str:service>/scale_in", scaling.ScaleIns.as_view()),
    path("services/<str:service>/scale_in/<str:request_id>", scaling.OneScaleIn.as_view()),
    path("services/<str:service>/autoscaler", autoscalers.AutoscalerOfService.as_view()),
    path("services/<str:service>/autoscaler/status", autoscalers.AutoscalerStatus.as_view()),
    path("services/<str:service>/autoscaler/enable", autoscalers.AutoscalerEnable.as_view()),
    path("services/<str:service>/autoscaler/conditions", autoscalers.AutoscalerConditions.as_view()),
    path("services/<str:service>/autoscaler/health", autoscalers.AutoscalerHealth.as_view()),
    path("services/<str:service>/autoscaler/scale_history", autoscalers.ScaleHistory.as_view()),
]
