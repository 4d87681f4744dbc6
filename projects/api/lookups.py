"""Find the objects that a request names, among those visible."""

from typing import NoReturn

from django.contrib.auth.models import User

from berth.core.errors import Invalid, NotFound
from berth.core.problems import Problem, shown
from pools.models import NodePool
from projects import selectors
from projects.acting import Acting
from projects.models import Department, Project


def pool_named(name: str) -> NodePool:
    """Return a pool. Call this only after checking that the user may see the owner of the quota."""
    pool = NodePool.objects.filter(name=name).first()
    if pool is None:
        raise NotFound(f"There is no node pool named {shown(name)}.")
    return pool


def department_in_body(acting: Acting, name: str) -> Department:
    department = selectors.departments(acting).filter(name=name).first()
    return department or _unknown("department", name)


def project_in_body(acting: Acting, name: str) -> Project:
    project = selectors.projects(acting).filter(name=name).first()
    return project or _unknown("project", name)


def user_in_body(username: str) -> User:
    """Return a user. Call this only after checking that the acting user may grant roles."""
    user = selectors.find_grantee(username)
    if user is None:
        raise Invalid([Problem("user", "does not exist", shown(username), "an exact user name")])
    return user


def _unknown(path: str, name: str) -> NoReturn:
    raise Invalid([Problem(path, "does not exist", shown(name), f"the name of a {path} that you see")])
