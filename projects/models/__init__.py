"""Models of tenants and their workloads."""

from projects.models.autoscaling import Autoscaler, MetricsPoint, Scaling
from projects.models.budgets import Budget, BudgetNotice
from projects.models.deliveries import Delivery
from projects.models.history import Audit, Event, QuotaChange
from projects.models.identities import Identity
from projects.models.lapses import Lapse
from projects.models.leftovers import Leftover
from projects.models.people import ApiToken, Membership, Role
from projects.models.ports import PortLink
from projects.models.scaling import Engine, ScaleRequest, ScaleStep, Service
from projects.models.sessions import Call, Session, SessionWorker
from projects.models.subscriptions import Subscription
from projects.models.templates import Template
from projects.models.tenants import Department, Project, Quota, RemovedQuota
from projects.models.views import SavedView
from projects.models.workloads import Phase, Pod, PodState, RoleNode, Workload, WorkloadKind

__all__ = [
    "ApiToken",
    "Audit",
    "Autoscaler",
    "Budget",
    "BudgetNotice",
    "Call",
    "Delivery",
    "Department",
    "Engine",
    "Event",
    "Identity",
    "Lapse",
    "Leftover",
    "Membership",
    "MetricsPoint",
    "Phase",
    "Pod",
    "PodState",
    "PortLink",
    "Project",
    "Quota",
    "QuotaChange",
    "RemovedQuota",
    "Role",
    "RoleNode",
    "SavedView",
    "ScaleRequest",
    "ScaleStep",
    "Scaling",
    "Service",
    "Session",
    "SessionWorker",
    "Subscription",
    "Template",
    "Workload",
    "WorkloadKind",
]
