"""Test users of every role, two departments, four projects and one pool."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User

from pools.models import NodePool
from projects.actor import Actor, GrantedRole
from projects.models import Department, Membership, Project


@dataclass(frozen=True)
class Person(Actor):
    user: User

    @property
    def roles(self) -> tuple[GrantedRole, ...]:
        """The user's current roles, because a test may grant or revoke some."""
        return Actor.for_user(self.user).roles


@dataclass(frozen=True)
class Cast:
    alice: Person  # platform admin
    bob: Person  # department admin of research
    carol: Person  # project admin of vision
    dave: Person  # member of vision
    erin: Person  # viewer of vision
    frank: Person  # signed in, but without a role
    grace: Person  # member of ads, in the other department
    research: Department
    product: Department
    vision: Project
    speech: Project
    ads: Project
    search: Project
    pool: NodePool

    @property
    def people(self) -> dict[str, Person]:
        return {
            name: getattr(self, name) for name in ("alice", "bob", "carol", "dave", "erin", "frank", "grace")
        }


def make_cast() -> Cast:
    """Create users, projects and a pool in few statements, because thousands of tests use them."""
    research, product = Department.objects.bulk_create(
        [Department(name=name) for name in ("research", "product")]
    )
    homes = {"vision": research, "speech": research, "ads": product, "search": product}
    vision, speech, ads, search = Project.objects.bulk_create(
        [Project(name=name, department=department) for name, department in homes.items()]
    )
    roles: dict[str, dict[str, Any] | None] = {
        "alice": {"role": "platform_admin"},
        "bob": {"role": "department_admin", "department": research},
        "carol": {"role": "project_admin", "project": vision},
        "dave": {"role": "member", "project": vision},
        "erin": {"role": "viewer", "project": vision},
        "frank": None,
        "grace": {"role": "member", "project": ads},
    }
    password = make_password("correct horse battery")
    users = User.objects.bulk_create(
        [User(username=name, email=f"{name}@example.org", password=password) for name in roles]
    )
    Membership.objects.bulk_create(
        [Membership(user=user, **role) for user, role in zip(users, roles.values(), strict=True) if role]
    )
    people = {user.username: Person.for_user(user) for user in users}
    pool = NodePool.objects.create(
        name="local",
        provider="fake",
        runtime="fake",
        nodes_min=0,
        nodes_max=4,
        gpus_per_node=2,
        cpu_milli=8000,
        memory_mib=16384,
    )
    return Cast(
        **people,
        research=research,
        product=product,
        vision=vision,
        speech=speech,
        ads=ads,
        search=search,
        pool=pool,
    )


def training(name: str = "train-1", **changes: object) -> dict[str, object]:
    return {
        "name": name,
        "command": "true",
        "roles": [{"name": "worker", "replicas": 2, "gpu": 1}],
        **changes,
    }
