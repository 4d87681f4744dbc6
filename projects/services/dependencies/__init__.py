"""Dependencies between workloads: the `after` section of their documents."""

from projects.services.dependencies.checks import dependency_problems, missing_dependency_warnings
from projects.services.dependencies.dependents import Dependent, find_dependents, reject_if_awaited
from projects.services.dependencies.resolution import (
    ResolvedDependency,
    find_newest_objects,
    resolve_dependencies,
    unmeetable_dependency_message,
)
from projects.services.dependencies.statuses import (
    DependencyStatus,
    current_waiting_message,
    dependency_statuses,
)

__all__ = [
    "DependencyStatus",
    "Dependent",
    "ResolvedDependency",
    "current_waiting_message",
    "dependency_problems",
    "dependency_statuses",
    "find_dependents",
    "find_newest_objects",
    "missing_dependency_warnings",
    "reject_if_awaited",
    "resolve_dependencies",
    "unmeetable_dependency_message",
]
