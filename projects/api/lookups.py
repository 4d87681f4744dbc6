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
    """Ask only after finding the owner of the quota among what the user may see."""
    found = NodePool.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"There is no node pool named {shown(name)}.")
    return found


def department_in_body(acting: Acting, name: str) -> Department:
    found = selectors.departments(acting).filter(name=name).first()
    return found or _unknown("department", name)


def project_in_body(acting: Acting, name: str) -> Project:
    found = selectors.projects(acting).filter(name=name).first()
    return found or _unknown("project", name)


def user_in_body(username: str) -> User:
    """Ask only after checking that the acting user may grant roles."""
    found = selectors.find_grantee(username)
    if found is None:
        raise Invalid([Problem("user", "there is none of that name", shown(username), "an exact user name")])
    return found


def _unknown(path: str, name: str) -> NoReturn:
    raise Invalid(
        [Problem(path, "there is none of that name", shown(name), f"the name of a {path} that you see")]
    )
