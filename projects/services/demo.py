"""Seed the demo organization through the regular services."""

import secrets

from django.contrib.auth.models import User
from django.db import transaction

from pools.models import NodePool
from pools.providers.hardware import Machine
from pools.services import create_pool
from projects import demo
from projects.actor import Actor
from projects.models import Department
from projects.models.tenants import Tenant
from projects.services import quotas, tenants
from projects.services.people import members

Passwords = dict[str, str]


def is_database_empty() -> bool:
    return not (Department.objects.exists() or NodePool.objects.exists())


@transaction.atomic
def seed_demo(machine: Machine) -> Passwords:
    """Create the demo organization with the machine's GPUs. Return the passwords, keyed by username."""
    actor = Actor.system("demo")
    pool = create_pool(actor=actor, **demo.pool_settings(machine))
    gpus = len(machine.devices) or demo.GPUS
    scopes: dict[str, Tenant] = {}
    for name, settings in demo.DEPARTMENTS.items():
        scopes[name] = tenants.create_department(actor=actor, name=name, title=settings["title"])
    for name, settings in demo.PROJECTS.items():
        department = scopes[settings["department"]]
        assert isinstance(department, Department)
        scopes[name] = tenants.create_project(
            actor=actor,
            department=department,
            name=name,
            title=settings["title"],
            rank=settings.get("rank", 0),
        )
    for name, settings in {**demo.DEPARTMENTS, **demo.PROJECTS}.items():
        values = demo.scale_quota(settings["quota"], gpus)
        quotas.set_quota(actor=actor, owner=scopes[name], pool=pool, values=values)
    return {
        name: _create_user(actor, name, role, scopes[scope_name])
        for name, (role, scope_name) in demo.PEOPLE.items()
    }


def _create_user(actor: Actor, name: str, role: str, scope: Tenant) -> str:
    password = secrets.token_urlsafe(9)
    user = User.objects.filter(username=name).first() or members.create_user(
        actor=actor, username=name, email=f"{name}@example.org"
    )
    user.set_password(password)
    user.save(update_fields=["password"])
    members.grant(actor=actor, user=user, role=role, scope=scope)
    return password
