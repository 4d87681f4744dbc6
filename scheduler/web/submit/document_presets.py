"""Initial documents for the submission form: examples, copies and templates."""

import contextlib
import uuid
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

from berth.core.spec import WorkloadSpec
from berth.documents import CannotEdit, edit_text
from berth.documents.ordered import dump_workload
from projects.access import visible_pools
from projects.actor import Actor
from projects.models import Project, Template, Workload, WorkloadArray
from projects.selectors import arrays, templates, workloads
from projects.services.workloads import free_name, next_free_name
from projects.services.workloads.templates import template_document
from scheduler.web.submit.form_choices import submittable_projects
from scheduler.web.workloads.details import document_text

MAX_TEMPLATES, NAME_MAX = 50, 63
ARRAY_NAME_MAX = 50  # maximum length that leaves room for the suffixes of copies and tasks
DEFAULT_EXAMPLE = "single"  # this example succeeds on any pool, without files
HEADER = """\
name: {name}
project: {project}
"""
EXAMPLE_GPU = "gpu: 1             # or a fraction of a device: 0.5"
EXAMPLE_WITHOUT_GPU = "gpu: 0             # no pool has GPUs"
EXAMPLES: Mapping[str, tuple[str, str, str]] = {
    "single": ("Single-pod training", "my-training", """\
command: |-
  nvidia-smi || echo "no NVIDIA driver"
  for step in 1 2 3; do echo "step $step"; sleep 5; done
roles:
  - name: worker
    replicas: 1
    gpu: 1             # or a fraction of a device: 0.5
    cpu: 2
    memory_mib: 4096
"""),
    "gang": ("Distributed training", "my-training", """\
command: python train.py --epochs 10
roles:
  - name: worker
    replicas: 2        # a gang: all start together
    gpu: 1
    cpu: 2
    memory_mib: 4096
restart_policy:
  kind: on_failure
  max_restarts: 2
"""),
    "roles": ("Several roles", "my-training", """\
roles:                 # started together or not at all
  - name: worker
    replicas: 4
    gpu: 1
    cpu: 2
    memory_mib: 4096
    command: python train.py
  - name: parameters
    replicas: 2
    cpu: 4
    memory_mib: 8192
    command: python serve_parameters.py
"""),
    "elastic": ("Elastic training", "my-training", """\
kind: elastic
# The number of replicas may change during the run.
command: >-
  torchrun --nnodes=$BERTH_WORLD_MIN:$BERTH_WORLD_MAX --rdzv-backend=c10d
  --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py
roles:
  - name: worker
    min: 2             # starts with this many replicas
    max: 8             # grows to this on free GPUs
    gpu: 1
    cpu: 2
    memory_mib: 4096
"""),
    "interactive": ("Interactive session", "my-session", """\
kind: interactive
command: sleep 8h
max_runtime: 8h
idle_timeout: 1h     # without output or requests
roles:
  - name: session
    replicas: 1
    gpu: 1
    cpu: 4
    memory_mib: 16384
"""),
    "service": ("Inference service", "my-service", """\
kind: service
command: >-
  python -m sglang.launch_server --model-path /models/my-model --host 0.0.0.0 --port $BERTH_PORT
roles:
  - name: engine
    replicas: 1        # engines that always run
    gpu: 1
    cpu: 8
    memory_mib: 32768
service:
  model_name: my-model
  autoscaler:          # changes the number of engines
    min_engines: 1
    max_engines: 4
"""),
}  # fmt: skip


MINIMAL_DOCUMENT = """\
command: python train.py
roles:
  - name: worker
    replicas: 1
    gpu: 1
"""
ORDER = tuple(WorkloadSpec.model_fields)


def initial_text(actor: Actor, query: Mapping[str, str]) -> str:
    """Return the text of a template, of an example, or of a copy of a workload or array.

    If the query contains a name, the text contains this name.
    """
    text = _initial_document(actor, query)
    if name := query.get("name", "").replace("\x00", "")[:NAME_MAX]:
        with contextlib.suppress(CannotEdit):
            return edit_text(text, ("name",), name, order=ORDER)
    return text


def _initial_document(actor: Actor, query: Mapping[str, str]) -> str:
    if (template := _find_template(actor, query.get("template", ""))) is not None:
        return _template_document(template)
    if (like := _find_workload_or_array(actor, query.get("like", ""))) is not None:
        if isinstance(like, Workload):
            return document_text(like, name=next_free_name(like.project, like.name))
        return document_text(like, name=copy_name(like))
    mine = submittable_projects(actor)
    chosen = query.get("project", "")
    project = chosen if chosen in mine else _most_used_project(actor, mine)
    kind = query.get("kind", "")
    _, name, rest = EXAMPLES.get(kind, EXAMPLES[DEFAULT_EXAMPLE])
    if kind not in EXAMPLES and not visible_pools(actor).filter(gpus_per_node__gt=0).exists():
        rest = rest.replace(EXAMPLE_GPU, EXAMPLE_WITHOUT_GPU)
    if (stored := Project.objects.filter(name=project).first()) is not None:
        name = free_name(stored, name)
    return HEADER.format(name=name, project=project) + rest


def copy_name(array: WorkloadArray) -> str:
    """Return an unused name for a copy of the array. The name ends in `-copy`."""
    return free_name(array.project, f"{array.name[:ARRAY_NAME_MAX]}-copy")


def _most_used_project(actor: Actor, mine: list[str]) -> str:
    """Return the project of the user's latest workload, else one in which the user has a role, else the first
    in `mine`. If `mine` is empty, return a placeholder.
    """
    own = Workload.objects.filter(submitted_by=actor.user, project__name__in=mine)
    latest = own.order_by("-submitted_at").values_list("project__name", flat=True).first()
    if latest is not None:
        return str(latest)
    ids = [role.project_id for role in actor.roles if role.project_id is not None]
    first = Project.objects.filter(pk__in=ids, name__in=mine).order_by("name").values_list("name", flat=True)
    return next(iter([*first[:1], *mine]), "my-project")


def example_links() -> list[tuple[str, str]]:
    """Return (title, query string) for each example."""
    return [(title, f"kind={key}") for key, (title, _, _) in EXAMPLES.items()]


def usable_templates(actor: Actor) -> list[tuple[str, list[str]]]:
    """Return the projects in which the user may submit workloads, each with the names of its templates."""
    mine = set(submittable_projects(actor))
    stored = templates(actor).filter(project__name__in=mine).order_by("project__name", "name")
    rows = stored.values_list("project__name", "name")[:MAX_TEMPLATES]
    return [(project, [name for _, name in group]) for project, group in groupby(rows, itemgetter(0))]


def template_text(text: str) -> str:
    """Return a document's text without the keys that identify a workload."""
    for key in ("name", "project", "submitted"):
        with contextlib.suppress(CannotEdit):
            text = edit_text(text, (key,))
    return text or MINIMAL_DOCUMENT


def template_text_from_workload(actor: Actor, like: str) -> tuple[str, str]:
    """Return the document of a workload or array as template text, and its name.

    If there is no such workload or array, return a minimal document and "".
    """
    workload = _find_workload_or_array(actor, like)
    return (
        (template_text(document_text(workload)), workload.name)
        if workload is not None
        else (MINIMAL_DOCUMENT, "")
    )


def _template_document(template: Template) -> str:
    text, document = template.text, template_document(template)
    if isinstance(document["name"], str):
        document["name"] = free_name(template.project, document["name"])
    try:
        for key in ("name", "project"):
            text = edit_text(text, (key,), document[key], order=ORDER)
    except CannotEdit:
        return dump_workload(document)
    return text


def _find_template(actor: Actor, handle: str) -> Template | None:
    project, _, name = handle.partition("/")
    return templates(actor).filter(project__name=project, name=name).first()


def _find_workload_or_array(actor: Actor, owner_id: str) -> Workload | WorkloadArray | None:
    if (workload := _find_workload(actor, owner_id)) is not None:
        return workload
    with contextlib.suppress(ValueError):
        return arrays(actor).filter(pk=uuid.UUID(owner_id)).first()
    return None


def _find_workload(actor: Actor, workload_id: str) -> Workload | None:
    try:
        return workloads(actor).filter(pk=uuid.UUID(workload_id)).first()
    except ValueError:
        return None
