"""Collect the choices that the submission form offers."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from pools.models import NodePool
from pools.runtimes.capabilities import runtime_capabilities
from projects.access import Action, may, visible_nodes, visible_pools
from projects.actor import Actor
from projects.selectors import projects, workloads
from scheduler.web.submit.form.fields import FormChoices
from scheduler.web.submit.usable_secrets import git_secrets, pod_secrets

SEARCHED_WORKLOADS, MAX_IMAGES = 100, 10


def choices_for(actor: Actor, document: Mapping[str, Any] | None = None, *, project: str = "") -> FormChoices:
    """Return the choices for a document, or for all documents if `document` is None.

    `project` is the project of a document that does not name one.
    """
    data = document or {}
    pools = list(visible_pools(actor).order_by("name"))
    allowed = _allowed_pools(pools, data.get("pools"))
    named = visible_nodes(actor).filter(pool__in=allowed).exclude(Q(gpu_model="") | Q(state="ended"))
    models = set(named.values_list("gpu_model", flat=True))
    models |= {pool.gpu_model for pool in allowed if pool.gpu_model}
    levels = dict.fromkeys(str(key) for pool in allowed for key in pool.topology or ())
    names = submittable_projects(actor)
    runs_images = any(runtime_capabilities(pool.runtime).runs_images for pool in pools)
    owner = data.get("project") or project
    return FormChoices(
        projects=names,
        pools=[pool.name for pool in pools],
        models=sorted(models),
        levels=list(levels),
        images=_recent_images(actor, names) if runs_images else [],
        runs_images=runs_images,
        secrets=pod_secrets(actor, owner, allowed),
        git_secrets=git_secrets(actor, owner),
    )


def _allowed_pools(pools: list[NodePool], names: Any) -> list[NodePool]:
    return [pool for pool in pools if isinstance(names, list) and pool.name in names] or pools


def _recent_images(actor: Actor, project_names: list[str]) -> list[str]:
    latest = workloads(actor).filter(project__name__in=project_names).order_by("-submitted_at")
    images = latest.values_list("spec__image", flat=True)[:SEARCHED_WORKLOADS]
    return list(dict.fromkeys(image for image in images if image))[:MAX_IMAGES]


def submittable_projects(actor: Actor) -> list[str]:
    """Return the names of the projects where the user may submit workloads."""
    return [project.name for project in projects(actor) if may(actor, Action.SUBMIT, project)]
