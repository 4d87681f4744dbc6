"""Here one writes a workload down, asks what would happen, and submits it; what was typed is never lost."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.api.parsers import read_yaml
from berth.core.errors import BerthError, Invalid, Malformed
from berth.core.problems import Problem, shown
from berth.web.pages import Request, done, page, signed_in
from pools.models import NodePool
from projects.access import Action, may
from projects.acting import Acting
from projects.models import Membership, Workload
from projects.selectors import departments, projects, workloads
from projects.services.workloads import submit
from scheduler.web.story import Obstacle, obstacles, written
from scheduler.what_if import Foreseen, dry_run

MOST_TEXT = 256 * 1024
EXAMPLE = """\
name: my-training
project: {project}
priority: medium-low
command: python train.py --epochs 10
roles:
  - name: worker
    replicas: 2        # a gang: all of them start together
    gpu: 1
    cpu: 2
    memory_mib: 4096
restart_policy:
  kind: on_failure
  max_restarts: 2
"""


@dataclass
class Answer:
    """What came of a document: faults, or what would happen."""

    problems: list[Problem] = field(default_factory=list)
    refused: str = ""
    foreseen: Foreseen | None = None

    @property
    def obstacles(self) -> list[Obstacle]:
        return obstacles(self.foreseen.blockers) if self.foreseen else []


@signed_in
@require_http_methods(["GET", "POST"])
def index(request: Request) -> HttpResponse:
    if request.method == "GET":
        return _page(request, _first_text(request), Answer())
    text = request.POST.get("document", "")
    answer = Answer()
    try:
        document = read(text)
        if request.POST.get("step") == "try":
            answer.foreseen = dry_run(acting=request.acting, document=document)
        else:
            workload = submit(acting=request.acting, document=document)
            return done(
                request,
                f"{workload.name} is submitted.",
                to=reverse("workload", args=[workload.pk]),
                leave=True,
            )
    except Invalid as error:
        answer.problems = list(error.problems)
    except BerthError as error:
        answer.refused = error.detail
    return _page(request, text, answer, status=200 if answer.foreseen else 422)


def read(text: str) -> dict[str, Any]:
    """YAML (so also JSON) that is keys and values."""
    if len(text) > MOST_TEXT:
        raise Invalid(
            [Problem("", "is too long", f"{len(text):,} characters", f"at most {MOST_TEXT:,} characters")]
        )
    try:
        document = read_yaml(text.encode("utf-8", "surrogatepass"))
    except Malformed as error:
        raise Invalid([Problem("", error.detail.removesuffix("."))]) from None
    if not isinstance(document, dict):
        raise Invalid([Problem("", "is not keys and values", shown(document), "key: value, one per line")])
    return document


def _first_text(request: Request) -> str:
    """An example, or another workload's document without the name that is taken."""
    try:
        like = workloads(request.acting).filter(pk=uuid.UUID(request.GET["like"])).first()
    except (KeyError, ValueError):
        like = None
    if isinstance(like, Workload):
        return written(like, name=f"{like.name[:60]}-2")
    mine = open_projects(request.acting)
    return EXAMPLE.format(project=mine[0] if mine else "my-project")


def open_projects(acting: Acting) -> list[str]:
    """Names of the projects in which this person may submit; one question per department or own project."""
    whole = {each.pk for each in departments(acting) if may(acting, Action.EDIT, each)}
    mine = set(
        Membership.objects.filter(user=acting.user, project__isnull=False).values_list("project", flat=True)
    )
    return [
        project.name
        for project in projects(acting)
        if project.department_id in whole or (project.pk in mine and may(acting, Action.SUBMIT, project))
    ]


def _page(request: Request, text: str, answer: Answer, *, status: int = 200) -> HttpResponse:
    context = {
        "text": text,
        "answer": answer,
        "projects": open_projects(request.acting),
        "pools": NodePool.objects.order_by("name"),
    }
    return page(
        request, "scheduler/submit.html", context, inner="scheduler/submit_answer.html", status=status
    )
