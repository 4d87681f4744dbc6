"""Rows needed to check submissions, read once per request."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db import connection
from django.db.models import Model

from berth.core.errors import NotFound
from berth.core.spec.sections.git import GitSpec
from berth.core.values.amounts import UNLIMITED, Bounds
from berth.db.queries import prepared
from pools.models import Node, NodePool, PoolSecret, SecretKind
from pools.models.node import HOSTING
from projects.access import Action, can_see, may, require
from projects.actor import Actor
from projects.engine.admission import Allowance, oversubscribed_resources
from projects.models import CodeFetch, CodeTree, Department, Project, ProjectSecret, UserSecret
from projects.selectors import projects as projects_of
from projects.services.code import find_tree, touch_tree
from projects.services.code_fetches import build_fetch

NO_QUOTA = Bounds(0, None, None)

POOL_COLUMNS = {
    "id", "name", "expires_at", "provider", "runtime", "image_policy", "built_environment_id",
    "quota_group_id", "volumes", "nodes_max", "labels",
}  # fmt: skip
POOL_FIELDS = [field.attname for field in NodePool._meta.concrete_fields if field.attname in POOL_COLUMNS]


def _select_columns(model: type[Model], alias: str) -> str:
    return ", ".join(f'{alias}."{field.column}"' for field in model._meta.concrete_fields)


# These queries run for every submission.
POOLS = f"""
    SELECT coalesce(json_agg(json_build_array({", ".join(POOL_FIELDS)}) ORDER BY name), '[]')::text
    FROM pools_nodepool
"""  # noqa: S608
QUOTAS = """
    SELECT coalesce(json_agg(json_build_array(
        quota.is_department, quota.owner, quota.pool_id, quota.group_id,
        quota.gpu_milli, quota.cpu_milli, quota.memory_mib,
        quota.limit_gpu_milli, quota.limit_cpu_milli, quota.limit_memory_mib
    )), '[]')::text
    FROM (
        SELECT true AS is_department, '' AS owner, own.* FROM projects_quota own
        WHERE own.department_id = (row.project).department_id
        UNION ALL
        SELECT false, sibling.name, each.* FROM projects_project sibling
        JOIN projects_quota each ON each.project_id = sibling.id
        WHERE sibling.department_id = (row.project).department_id
    ) quota
"""


def _projects_query(lock: str) -> str:
    """Return the SQL query that reads projects by name.

    To avoid repetition, a department's quotas are in only one of its rows, and the list of pools is in only
    one row.
    """
    return f"""
        WITH row AS MATERIALIZED (
            SELECT project, department FROM projects_project project
            JOIN projects_department department ON department.id = project.department_id
            WHERE project.name = ANY(%s) {lock}
        )
        SELECT {_select_columns(Project, "(row.project)")}, {_select_columns(Department, "(row.department)")},
            CASE WHEN row_number() OVER (PARTITION BY (row.project).department_id) = 1 THEN ({QUOTAS}) END,
            CASE WHEN row_number() OVER () = 1 THEN ({POOLS}) END
        FROM row
    """  # noqa: S608


PROJECTS, LOCKED_PROJECTS = _projects_query(""), _projects_query("FOR KEY SHARE OF project")
PROJECT_FIELDS = [field.attname for field in Project._meta.concrete_fields]
DEPARTMENT_FIELDS = [field.attname for field in Department._meta.concrete_fields]


PlaceKey = tuple[int | None, int | None]  # pool ID or quota group ID; the other is None


class DepartmentAllowances:
    """Quotas and limits of a department and its projects, keyed by pool or quota group."""

    def __init__(self) -> None:
        self.department: dict[PlaceKey, Allowance] = {}
        self.projects: dict[PlaceKey, dict[str, Allowance]] = {}

    def allowances_in_pool(self, pool: NodePool) -> tuple[Allowance | None, Mapping[str, Allowance]]:
        """Return the allowances of the department (None if it has none) and of its projects in the pool."""
        own, group = (pool.pk, None), (None, pool.quota_group_id)
        projects = {**self.projects.get(own, {}), **self.projects.get(group, {})}
        return self.department.get(own) or self.department.get(group), projects


class SubmissionView:
    """Projects, pools, quotas and nodes, read once for all checks in a request.

    If `locks` is set, projects cannot be deleted until the caller's transaction ends.
    """

    def __init__(self, actor: Actor, *, locks: bool = False) -> None:
        self.actor = actor
        self.has_locks = locks
        self._projects: dict[str, Project | None] = {}
        self._allowances: dict[int, DepartmentAllowances] = {}
        self._submittable: set[int] = set()
        self._code: dict[tuple[int, str], CodeTree | None] = {}
        self._code_fetches: dict[tuple[int, str], CodeFetch] = {}

    def load_projects(self, names: Iterable[str]) -> None:
        """Read the named projects, the quotas of their departments, and all pools."""
        missing = sorted(set(names) - self._projects.keys())
        if not missing:
            return
        rows: dict[str, Project] = {}
        for row in prepared.fetch_all(LOCKED_PROJECTS if self.has_locks else PROJECTS, [missing]):
            *values, quotas, pools = row
            project = _build_model(Project, PROJECT_FIELDS, values[: len(PROJECT_FIELDS)])
            project.idle_rule = json.loads(project.idle_rule)
            project.department = _build_model(Department, DEPARTMENT_FIELDS, values[len(PROJECT_FIELDS) :])
            rows[project.name] = project
            if quotas is not None:
                self._allowances[project.department_id] = _build_allowances(
                    project.department, json.loads(quotas)
                )
            if pools is not None:
                self.__dict__["pools"] = _build_pools(json.loads(pools))
        self._projects.update({name: rows.get(name) for name in missing})
        # Discard the cache, which lacks the new projects' secrets.
        self.__dict__.pop("_project_secrets", None)

    def visible_project(self, name: str) -> Project | None:
        """Return the project with the given name, or None if the user cannot see it."""
        self.load_projects([name])
        project = self._projects[name]
        return project if project is not None and can_see(self.actor, project) else None

    def require_submit_permission(self, project: Project) -> None:
        """Raise NotFound or Forbidden unless the user may submit workloads to the project."""
        if project.pk not in self._submittable:
            require(self.actor, Action.SUBMIT, project)
            self._submittable.add(project.pk)

    def refresh_project(self, project: Project) -> Project:
        """Return the current row of a project. Raises NotFound if it has been deleted."""
        self.load_projects([project.name])
        current = self._projects[project.name]
        if current is None or current.pk != project.pk:
            raise NotFound(f"The project {project.name} has been deleted.")
        return current

    @cached_property
    def submittable_projects(self) -> list[Project]:
        """Projects that the user may submit workloads to."""
        visible = projects_of(self.actor)
        return [project for project in visible if may(self.actor, Action.SUBMIT, project)]

    @cached_property
    def pools(self) -> Mapping[str, NodePool]:
        """All pools, keyed by name and in name order."""
        return _build_pools(json.loads(prepared.fetch_all(POOLS, [])[0][0]))

    def allowances(self, project: Project, pool: str) -> tuple[Allowance, Allowance, bool]:
        """Return the quotas and limits of the project and its department, and whether the department is
        oversubscribed.
        """
        department = project.department
        stored, projects = self._allowances[department.pk].allowances_in_pool(self.pools[pool])
        project_allowance = projects.get(project.name) or Allowance(project.name, NO_QUOTA, UNLIMITED)
        department_allowance = stored or Allowance(department.name, NO_QUOTA, UNLIMITED)
        is_oversubscribed = bool(oversubscribed_resources(department_allowance, projects.values()))
        return project_allowance, department_allowance, is_oversubscribed

    def code_tree(self, project: Project, digest: str, at: datetime) -> CodeTree | None:
        """Return the project's code tree with the given digest, or None if it is not stored."""
        key = (project.pk, digest)
        if key not in self._code:
            self._code[key] = (
                touch_tree(project, digest, at) if self.has_locks else find_tree(project, digest)
            )
        return self._code[key]

    def code_fetch(self, project: Project, spec: GitSpec, at: datetime) -> CodeFetch:
        """Return the fetch request for the code that `spec` describes.

        Documents with the same `code.git` section share one.
        """
        key = (project.pk, spec.model_dump_json())
        if key not in self._code_fetches:
            user_id = None if self.actor.user is None else self.actor.user.pk
            self._code_fetches[key] = build_fetch(project, spec, user_id, at)
        return self._code_fetches[key]

    def fetch_secret_names(self, project: Project) -> set[str]:
        """Return the names of the project's secrets that can be used to fetch code."""
        kinds = (SecretKind.VALUE, SecretKind.SSH_KEY)
        return {name for kind in kinds for owner, name in self._project_secrets[kind] if owner == project.pk}

    def secret_names(self, project: Project, pools: Iterable[str]) -> dict[str, set[str]]:
        """Return the names of the secrets that the project's pods can use in each pool."""
        names = {name for owner, name in self._project_secrets[SecretKind.VALUE] if owner == project.pk}
        rows = self._pool_secrets[SecretKind.VALUE]
        return {pool: names | {name for owner, name in rows if owner == pool} for pool in pools}

    def registry_secret_names(self, project: Project, pools: Collection[str]) -> set[str]:
        """Return the names of the project's and the pools' registry credentials."""
        names = {name for owner, name in self._project_secrets[SecretKind.REGISTRY] if owner == project.pk}
        return names | {name for owner, name in self._pool_secrets[SecretKind.REGISTRY] if owner in pools}

    @cached_property
    def personal_secret_names(self) -> frozenset[str]:
        if self.actor.user is None:
            return frozenset()
        return frozenset(UserSecret.objects.filter(user=self.actor.user.pk).values_list("name", flat=True))

    @cached_property
    def _project_secrets(self) -> dict[str, list[tuple[int, str]]]:
        projects = [project.pk for project in self._projects.values() if project is not None]
        rows: dict[str, list[tuple[int, str]]] = defaultdict(list)
        secrets = ProjectSecret.objects.filter(project__in=projects)
        for kind, owner, name in secrets.values_list("kind", "project_id", "name"):
            rows[kind].append((owner, name))
        return rows

    @cached_property
    def _pool_secrets(self) -> dict[str, list[tuple[str, str]]]:
        rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for kind, owner, name in PoolSecret.objects.values_list("kind", "pool__name", "name"):
            rows[kind].append((owner, name))
        return rows

    @cached_property
    def pools_that_reject_limits(self) -> frozenset[str]:
        """Pools with a node whose agent reported that it cannot enforce memory or CPU limits."""
        nodes = Node.objects.filter(state__in=HOSTING, isolation__isnull=False)
        reports = ((node.pool.name, node.isolation or {}) for node in nodes.select_related("pool"))
        return frozenset(
            name
            for name, report in reports
            if not {"memory", "cpu"} <= set(report["limits"]) and not report["ignores_limits"]
        )


def _build_pools(rows: Iterable[Sequence[Any]]) -> dict[str, NodePool]:
    pools: dict[str, NodePool] = {}
    for values in rows:
        pool = _build_model(NodePool, POOL_FIELDS, values)
        pool.expires_at = pool.expires_at and datetime.fromisoformat(pool.expires_at)
        pools[pool.name] = pool
    return pools


def _build_allowances(department: Department, rows: Iterable[Sequence[Any]]) -> DepartmentAllowances:
    allowances = DepartmentAllowances()
    for is_department, owner, pool, group, *amounts in rows:
        place, bounds = (pool, group), (Bounds(*amounts[:3]), Bounds(*amounts[3:]))
        if is_department:
            allowances.department[place] = Allowance(department.name, *bounds)
        else:
            allowances.projects.setdefault(place, {})[owner] = Allowance(owner, *bounds)
    return allowances


def _build_model(model: Any, fields: Sequence[str], values: Sequence[Any]) -> Any:
    return model.from_db(connection.alias, fields, values)
