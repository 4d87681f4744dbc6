"""Models for tenants and their workloads."""

from projects.models.arrays import ArrayState, WorkloadArray
from projects.models.autoscaling import Autoscaler, MetricsPoint, Scaling
from projects.models.budgets import Budget, BudgetWarning
from projects.models.code import CodeChunk, CodeFetch, CodeTree
from projects.models.history import Audit, Event, QuotaChange, QuotaExpiry
from projects.models.notifications import Delivery, Subscription
from projects.models.people import ApiToken, Identity, Membership, Role, SavedView
from projects.models.pods.channels import OpenChannel
from projects.models.pods.idle import IdleWarning
from projects.models.pods.images import RunImage
from projects.models.pods.leftovers import Leftover
from projects.models.pods.metrics import Metric, MetricsReader
from projects.models.pods.outputs import OutputState, PodOutputs
from projects.models.pods.ports import PortLink
from projects.models.scaling import InferenceEngine, ScaleRequest, ScaleStep, Service
from projects.models.schedules import Schedule, ScheduleRun
from projects.models.secrets import ProjectSecret, SecretUse, SecretValue, UserSecret
from projects.models.sessions import Call, Session, SessionWorker
from projects.models.templates import Template
from projects.models.tenants import Department, Project, Quota, RemovedQuota
from projects.models.workloads import (
    Phase,
    Pod,
    PodState,
    Workload,
    WorkloadDeletion,
    WorkloadKind,
    WorkloadRole,
)

__all__ = [
    "ApiToken",
    "ArrayState",
    "Audit",
    "Autoscaler",
    "Budget",
    "BudgetWarning",
    "Call",
    "CodeChunk",
    "CodeFetch",
    "CodeTree",
    "Delivery",
    "Department",
    "Event",
    "Identity",
    "IdleWarning",
    "InferenceEngine",
    "Leftover",
    "Membership",
    "Metric",
    "MetricsPoint",
    "MetricsReader",
    "OpenChannel",
    "OutputState",
    "Phase",
    "Pod",
    "PodOutputs",
    "PodState",
    "PortLink",
    "Project",
    "ProjectSecret",
    "Quota",
    "QuotaChange",
    "QuotaExpiry",
    "RemovedQuota",
    "Role",
    "RunImage",
    "SavedView",
    "ScaleRequest",
    "ScaleStep",
    "Scaling",
    "Schedule",
    "ScheduleRun",
    "SecretUse",
    "SecretValue",
    "Service",
    "Session",
    "SessionWorker",
    "Subscription",
    "Template",
    "UserSecret",
    "Workload",
    "WorkloadArray",
    "WorkloadDeletion",
    "WorkloadKind",
    "WorkloadRole",
]
