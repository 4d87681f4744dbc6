"""The workload document: schema, parsing and validation."""

from berth.core.problems import Problem
from berth.core.spec.parsing.parse import parse_workload
from berth.core.spec.parsing.rejection import SpecError
from berth.core.spec.roles import RoleSpec, Toleration, Topology
from berth.core.spec.sections.arrays import ArraySpec
from berth.core.spec.sections.retry import RetryRule
from berth.core.spec.tree import GroupShape, RoleShape, build_tree
from berth.core.spec.workload import GroupSpec, Notification, RestartPolicy, WorkloadSpec

__all__ = [
    "ArraySpec",
    "GroupShape",
    "GroupSpec",
    "Notification",
    "Problem",
    "RestartPolicy",
    "RetryRule",
    "RoleShape",
    "RoleSpec",
    "SpecError",
    "Toleration",
    "Topology",
    "WorkloadSpec",
    "build_tree",
    "parse_workload",
]  # fmt: skip
