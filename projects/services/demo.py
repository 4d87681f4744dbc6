"""Seed the demo organisation through the regular services."""

import secrets

from django.contrib.auth.models import User
from django.db import transaction

from pools.models import NodePool
from pools.services import create_pool
from projects import demo
from projects.acting import Acting
from projects.models import Department, Project
from projects.services import quotas, tenants
from projects.services.people import members

Passwords = dict[str, str]


def is_empty() -> bool:
    return not (Department.objects.exists() or NodePool.objects.exists())


@transaction.atomic
def seed() -> Passwords:
    """Everything of `projects.demo`; the passwords of the people that it made."""
    acting = Acting.system("demo")
    pool = create_pool(acting=acting, **demo.POOL)
    scopes: dict[str, Department | Project] = {}
    for name, described in demo.DEPARTMENTS.items():
        scopes[name] = tenants.create_department(acting=acting, name=name, title=described["title"])
    for name, described in demo.PROJECTS.items():
        department = scopes[described["department"]]
        assert isinstance(department, Department)
        scopes[name] = tenants.create_project(
            acting=acting,
            department=department,
            name=name,
            title=described["title"],
            rank=described.get("rank", 0),
        )
    for name, described in {**demo.DEPARTMENTS, **demo.PROJECTS}.items():
        quotas.set_quota(acting=acting, owner=scopes[name], pool=pool, values=described["quota"])
    return {name: _person(acting, name, role, scopes[place]) for name, (role, place) in demo.PEOPLE.items()}


def _person(acting: Acting, name: str, role: str, scope: Department | Project) -> str:
    password = secrets.token_urlsafe(9)
    user = User.objects.filter(username=name).first() or members.create_user(
        acting=acting, username=name, email=f"{name}@example.org"
    )
    user.set_password(password)
    user.save(update_fields=["password"])
    members.grant(acting=acting, user=user, role=role, scope=scope)
    return password
