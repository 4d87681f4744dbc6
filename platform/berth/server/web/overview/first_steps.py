"""First steps of a new installation or user, shown on the overview until all are done.

They are collapsed after the first workload.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.urls import reverse
from django.utils import timezone

from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.models import ApiToken, Department, Membership, Project, Quota, Workload

FOLDED_FOR = timedelta(days=7)  # open steps are hidden once the first workload is this old


@dataclass(frozen=True, slots=True)
class FirstStep:
    """Step with a link to the page where it is done. `chapter` is its documentation page."""

    title: str
    text: str
    path: str
    label: str
    chapter: str
    done: bool


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Steps to show, or no steps once all are done.

    `is_folded` is True if the steps are collapsed until the user expands them.
    """

    steps: list[FirstStep]
    is_folded: bool = False

    @property
    def done_count(self) -> int:
        return sum(step.done for step in self.steps)


def first_steps(actor: Actor, *, can_submit: bool) -> FirstSteps:
    """Return the steps for the user's role, collapsed after the first workload.

    Platform admins see the steps for the installation, and users who may submit see their own.
    """
    if may(actor, Action.ADMINISTER):
        return _installation_steps(actor)
    return _submitter_steps(actor) if can_submit else FirstSteps([])


def _installation_steps(actor: Actor) -> FirstSteps:
    """Return the steps for setting up the installation.

    There are no steps if all are done, or if the first workload started long ago.
    """
    started_long_ago = Workload.objects.filter(first_started_at__lt=timezone.now() - FOLDED_FOR)
    states = _user_row(actor).values_list(
        Exists(Workload.objects.filter(first_started_at__isnull=False)),
        Exists(started_long_ago),
        Exists(NodePool.objects.all()),
        Exists(Project.objects.all()),
        Exists(Quota.objects.all()),
        Exists(Membership.objects.exclude(user=OuterRef("pk"))),
        Exists(Workload.objects.all()),
        Exists(User.objects.exclude(pk=OuterRef("pk"))),
        Subquery(NodePool.objects.order_by("pk").values("name")[:1]),
        Subquery(Department.objects.order_by("pk").values("name")[:1]),
    )
    (
        started, is_old, has_pool, has_project, has_quota, has_member, has_workload, has_user,
        pool, department,
    ) = states.get()  # fmt: skip
    if is_old or all((has_pool, has_project, has_quota, has_member, has_workload)):
        return FirstSteps([])
    steps = [
        FirstStep(
            "Create a node pool", "Identical machines: this one, hosts over SSH, a cluster or a cloud.",
            reverse("pool-new"), "Create node pool", "admins/#node-pools", has_pool,
        ),
        FirstStep(
            "Create a department and a project", "Departments divide GPUs among their projects.",
            reverse("project-new", args=[department]) if department else reverse("department-new"),
            "Create project" if department else "Create department",
            "admins/#departments-projects-and-roles", has_project,
        ),
        FirstStep(
            "Set a quota", "The GPUs that a department or project can count on in a pool.",
            reverse("quota", args=["departments", department, pool])
            if pool and department
            else reverse("quotas"),
            f"Set quota of {department}" if pool and department else "Set quota",
            "admins/#quotas", has_quota,
        ),
        FirstStep(
            "Grant a role to a colleague", "Members submit workloads; project admins manage a project.",
            reverse("grant") if has_user else reverse("user-new"), "Grant role" if has_user else "Add user",
            "admins/#departments-projects-and-roles", has_member,
        ),
        FirstStep(
            "Submit the first workload", "The form starts with an example and shows where it would run.",
            reverse("submit"), "Submit workload", "researchers/#submit-a-workload", has_workload,
        ),
    ]  # fmt: skip
    return FirstSteps(steps, is_folded=started)


def _submitter_steps(actor: Actor) -> FirstSteps:
    own = Workload.objects.filter(submitted_by=OuterRef("pk"))
    old = own.filter(submitted_at__lt=timezone.now() - FOLDED_FOR)
    tokens = ApiToken.objects.filter(user=OuterRef("pk"))
    states = _user_row(actor).values_list(Exists(own), Exists(old), Exists(tokens))
    has_workload, is_old, has_token = states.get()
    if is_old or (has_workload and has_token):
        return FirstSteps([])
    steps = [
        FirstStep(
            "Submit your first workload", "The form starts with an example and shows where it would run.",
            reverse("submit"), "Submit workload", "researchers/#submit-a-workload", has_workload,
        ),
        FirstStep(
            "Use the command line", "Create a token, then submit and follow workloads with berth.",
            reverse("access"), "Create token", "researchers/#install-and-sign-in", has_token,
        ),
    ]  # fmt: skip
    return FirstSteps(steps, is_folded=has_workload)


def _user_row(actor: Actor) -> QuerySet[User]:
    return User.objects.filter(pk=actor.user.pk) if actor.user else User.objects.none()
