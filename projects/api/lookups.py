"""Look up visible objects by the names in a request."""

from typing import NoReturn

from django.contrib.auth.models import User

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem, format_value
from berth.db.queries.known_names import NameColumn
from pools.models import NodePool, QuotaGroup
from projects import selectors
from projects.actor import Actor
from projects.models import Department, Project
from projects.models.tenants import PoolOrGroup
from projects.services.quotas.pools_and_groups import find_pool_or_group


def resolve_pool(name: str) -> NodePool:
    """Return the pool with the given name, to look up or change a quota in it.

    Raises NotFound. The caller must first check access to the quota's owner.
    """
    pool = NodePool.objects.filter(name=name).first()
    if pool is None:
        raise not_found_error(ObjectKind.POOL, name=name, visible=NameColumn(NodePool.objects.all()).list())
    return pool


def resolve_pool_or_group(name: str) -> PoolOrGroup:
    """Return the pool or quota group with the given name, to look up or change a quota in it.

    Raises NotFound. The caller must first check access to the quota's owner.
    """
    place = find_pool_or_group(name)
    if place is None:
        names = NameColumn(NodePool.objects.all()).list() | NameColumn(QuotaGroup.objects.all()).list()
        raise not_found_error(ObjectKind.POOL_OR_GROUP, name=name, visible=names)
    return place


def resolve_department(actor: Actor, name: str) -> Department:
    department = selectors.departments(actor).filter(name=name).first()
    return department or _raise_unknown_name("department", name)


def resolve_project(actor: Actor, name: str) -> Project:
    project = selectors.projects(actor).filter(name=name).first()
    return project or _raise_unknown_name("project", name)


def resolve_user(username: str) -> User:
    """Return the user with the given name, or raise Invalid.

    The caller must first check that the actor may grant roles.
    """
    user = selectors.find_grantee(username)
    if user is None:
        raise Invalid([Problem("user", "does not exist", format_value(username), "an exact username")])
    return user


def _raise_unknown_name(path: str, name: str) -> NoReturn:
    raise Invalid(
        [Problem(path, "does not exist", format_value(name), f"the name of a {path} that you can see")]
    )
