"""URL routes for the projects API."""

from django.urls import URLPattern, URLResolver, path

from projects.api import account, departments, history, members, projects, secrets, subscriptions, templates
from projects.api.arrays import views as arrays
from projects.api.quotas import changes as quota_changes
from projects.api.quotas import views as quotas
from projects.api.services import autoscalers, scaling
from projects.api.services import views as services
from projects.api.sessions import calls, workers
from projects.api.sessions import views as sessions
from projects.api.workloads import batch, pods, ports
from projects.api.workloads import views as workloads

urlpatterns: list[URLPattern | URLResolver] = [
    path("login", account.Login.as_view()),
    path("password", account.Password.as_view()),
    path("whoami", account.Whoami.as_view()),
    path("tokens", account.Tokens.as_view()),
    path("tokens/<int:token_id>", account.TokenDetail.as_view()),
    path("departments", departments.Departments.as_view()),
    path("departments/<str:name>", departments.DepartmentDetail.as_view()),
    path("projects", projects.Projects.as_view()),
    path("projects/<str:name>", projects.ProjectDetail.as_view()),
    path("projects/<str:name>/templates", templates.ProjectTemplates.as_view()),
    path("projects/<str:name>/templates/<str:template>", templates.TemplateDetail.as_view()),
    path("projects/<str:name>/secrets", secrets.ProjectSecrets.as_view()),
    path("projects/<str:name>/secrets/<str:secret>", secrets.ProjectSecretDetail.as_view()),
    path("templates", templates.Templates.as_view()),
    path("quotas", quotas.Quotas.as_view()),
    path("quotas/apply", quota_changes.ApplyQuotas.as_view()),
    path("quotas/changes", quota_changes.QuotaChanges.as_view()),
    path("quotas/changes/<int:change_id>", quota_changes.QuotaChangeDetail.as_view()),
    path("quotas/changes/<int:change_id>/revert", quota_changes.RevertQuotaChange.as_view()),
    path("subscriptions", subscriptions.Subscriptions.as_view()),
    path("subscriptions/<int:subscription_id>", subscriptions.SubscriptionDetail.as_view()),
    path("subscriptions/<int:subscription_id>/test", subscriptions.SubscriptionTest.as_view()),
    path("subscriptions/<int:subscription_id>/deliveries", subscriptions.SubscriptionDeliveries.as_view()),
    path("members", members.Members.as_view()),
    path("members/<int:member_id>", members.MemberDetail.as_view()),
    path("users", members.Users.as_view()),
    path("workloads", workloads.Workloads.as_view()),
    path("workloads:batch", batch.SubmitBatch.as_view()),
    path("workloads/cancel", workloads.CancelMany.as_view()),
    path("workloads/<uuid:workload_id>", workloads.WorkloadDetail.as_view()),
    path("workloads/<uuid:workload_id>/cancel", workloads.Cancel.as_view()),
    path("workloads/<uuid:workload_id>/suspend", workloads.Suspend.as_view()),
    path("workloads/<uuid:workload_id>/resume", workloads.Resume.as_view()),
    path("workloads/<uuid:workload_id>/pods", pods.WorkloadPods.as_view()),
    path("workloads/<uuid:workload_id>/ports/<str:port>/link", ports.CreatePortLink.as_view()),
    path("workloads/<uuid:workload_id>/events", history.WorkloadEvents.as_view()),
    path("workloads/<uuid:workload_id>/deliveries", subscriptions.WorkloadDeliveries.as_view()),
    path("arrays", arrays.Arrays.as_view()),
    path("arrays/<uuid:array_id>", arrays.ArrayDetail.as_view()),
    path("arrays/<uuid:array_id>/cancel", arrays.CancelArray.as_view()),
    path("arrays/<uuid:array_id>/retry", arrays.RetryArray.as_view()),
    path("sessions", sessions.Sessions.as_view()),
    path("sessions/<uuid:workload_id>", sessions.SessionDetail.as_view()),
    path("sessions/<uuid:workload_id>/end", sessions.EndSession.as_view()),
    path("sessions/<uuid:workload_id>/calls", calls.Calls.as_view()),
    path("sessions/<uuid:workload_id>/calls/drop", calls.CancelCalls.as_view()),
    path("sessions/<uuid:workload_id>/results", calls.Results.as_view()),
    path("workers/program.zip", workers.program),
    path("workers/hello", workers.RegisterWorker.as_view()),
    path("workers/orders", workers.FetchCalls.as_view()),
    path("workers/results", workers.SubmitResults.as_view()),
    path("workers/leave", workers.LeaveSession.as_view()),
    path("pods", pods.Pods.as_view()),
    path("events", history.Events.as_view()),
    path("audit", history.AuditTrail.as_view()),
    path("services", services.Services.as_view()),
    path("services/<str:service>", services.ServiceDetail.as_view()),
    path("services/<str:service>/engines", services.ServiceEngines.as_view()),
    path("services/<str:service>/weights", services.ServiceWeights.as_view()),
    path("services/<str:service>/metrics", autoscalers.ServiceMetrics.as_view()),
    path("services/<str:service>/scale_out", scaling.ScaleOuts.as_view()),
    path("services/<str:service>/scale_out/<str:request_id>", scaling.ScaleOutDetail.as_view()),
    path("services/<str:service>/scale_out/<str:request_id>/cancel", scaling.CancelScaleOut.as_view()),
    path("services/<str:service>/scale_out_cancel", scaling.CancelScaleOuts.as_view()),
    path("services/<str:service>/scale_in", scaling.ScaleIns.as_view()),
    path("services/<str:service>/scale_in/<str:request_id>", scaling.ScaleInDetail.as_view()),
    path("services/<str:service>/autoscaler", autoscalers.ServiceAutoscaler.as_view()),
    path("services/<str:service>/autoscaler/status", autoscalers.AutoscalerStatus.as_view()),
    path("services/<str:service>/autoscaler/enable", autoscalers.AutoscalerEnable.as_view()),
    path("services/<str:service>/autoscaler/conditions", autoscalers.AutoscalerConditions.as_view()),
    path("services/<str:service>/autoscaler/health", autoscalers.AutoscalerHealth.as_view()),
    path("services/<str:service>/autoscaler/scale_history", autoscalers.ScaleHistory.as_view()),
]
