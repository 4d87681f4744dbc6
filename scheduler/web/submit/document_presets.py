"""Starting documents of the submission form: examples, copies, templates."""

import contextlib
import uuid
from collections.abc import Mapping

from berth.core.spec import WorkloadSpec
from berth.documents import CannotEdit, edited
from berth.documents.ordered import as_text
from projects.acting import Acting
from projects.models import Template, Workload
from projects.selectors import templates, workloads
from projects.services.workloads.templates import document_of
from scheduler.web.submit.form_choices import open_projects
from scheduler.web.workloads.details import written

MOST_TEMPLATES = 50
HEAD = """\
name: {name}
project: {project}
"""
KINDS: Mapping[str, tuple[str, str, str]] = {
    "gang": ("Distributed training", "my-training", """\
command: python train.py --epochs 10
roles:
  - name: worker
    replicas: 2        # a gang: all replicas start together
    gpu: 1
    cpu: 2
    memory_mib: 4096
restart_policy:
  kind: on_failure
  max_restarts: 2
"""),
    "single": ("Single-pod training", "my-training", """\
command: python train.py --epochs 10
roles:
  - name: worker
    replicas: 1
    gpu: 1             # or a fraction of a device: 0.5
    cpu: 2
    memory_mib: 4096
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
# The rendezvous accepts a changing number of members while the workload runs.
command: >-
  torchrun --nnodes=$BERTH_WORLD_MIN:$BERTH_WORLD_MAX --rdzv-backend=c10d
  --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py
roles:
  - name: worker
    min: 2             # starts with this many replicas
    max: 8             # grows up to this while capacity is free
    gpu: 1
    cpu: 2
    memory_mib: 4096
"""),
    "interactive": ("Interactive session", "my-session", """\
kind: interactive
command: sleep 8h
max_runtime: 28800     # seconds
idle_timeout: 3600     # ends after this long without log output or visits to its ports
roles:
  - name: session
    replicas: 1
    gpu: 1
    cpu: 4
    memory_mib: 16384
"""),
}  # fmt: skip


BARE = """\
command: python train.py
roles:
  - name: worker
    replicas: 1
    gpu: 1
"""
ORDER = tuple(WorkloadSpec.model_fields)


def first_text(acting: Acting, query: Mapping[str, str]) -> str:
    """Return the text of a template, of another workload under a new name, or of an example."""
    if (template := _template(acting, query.get("template", ""))) is not None:
        return _template_document(template)
    if (like := _workload(acting, query.get("like", ""))) is not None:
        return written(like, name=f"{like.name[:60]}-2")
    mine = open_projects(acting)
    chosen = query.get("project", "")
    project = chosen if chosen in mine else mine[0] if mine else "my-project"
    _, name, rest = KINDS.get(query.get("kind", ""), KINDS["gang"])
    return HEAD.format(name=name, project=project) + rest


def starts() -> list[tuple[str, str]]:
    """Return (title, query string) of each example."""
    return [(title, f"kind={key}") for key, (title, _, _) in KINDS.items()]


def template_starts(acting: Acting) -> list[str]:
    mine = set(open_projects(acting))
    stored = templates(acting).filter(project__name__in=mine)[:MOST_TEMPLATES]
    return [template.handle for template in stored]


def template_text(text: str) -> str:
    """Return a document without its name and project."""
    for key in ("name", "project", "submitted"):
        with contextlib.suppress(CannotEdit):
            text = edited(text, (key,))
    return text or BARE


def kept_text(acting: Acting, like: str) -> tuple[str, str]:
    """Return a workload's document without name and project, and the workload's name."""
    workload = _workload(acting, like)
    return (template_text(written(workload)), workload.name) if workload is not None else (BARE, "")


def _template_document(template: Template) -> str:
    """Return the template's text, including comments, with name and project."""
    text = template.text
    try:
        for key, value in (("name", document_of(template)["name"]), ("project", template.project.name)):
            text = edited(text, (key,), value, order=ORDER)
    except CannotEdit:
        return as_text(document_of(template))
    return text


def _template(acting: Acting, handle: str) -> Template | None:
    project, _, name = handle.partition("/")
    return templates(acting).filter(project__name=project, name=name).first()


def _workload(acting: Acting, workload_id: str) -> Workload | None:
    try:
        return workloads(acting).filter(pk=uuid.UUID(workload_id)).first()
    except ValueError:
        return None
