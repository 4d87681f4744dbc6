"""Choices offered on the submission form."""

from django.db.models import Q

from pools.runtimes.capabilities import capabilities_of
from projects.access import Action, may, visible_nodes, visible_pools
from projects.acting import Acting
from projects.models import Membership
from projects.selectors import departments, projects
from scheduler.web.submit.form.fields import Offer


def offer_to(acting: Acting) -> Offer:
    pools = list(visible_pools(acting).order_by("name"))
    named = visible_nodes(acting).exclude(Q(gpu_model="") | Q(state="ended"))
    models = set(named.values_list("gpu_model", flat=True))
    models |= {pool.gpu_model for pool in pools if pool.gpu_model}
    labels = dict.fromkeys(str(key) for pool in pools for key in pool.topology or ())
    return Offer(
        projects=open_projects(acting),
        pools=[pool.name for pool in pools],
        models=sorted(models),
        labels=list(labels),
        runs_images=any(capabilities_of(pool.runtime).runs_images for pool in pools),
    )


def open_projects(acting: Acting) -> list[str]:
    """Return the projects in which this user may submit, with one check per department or own project."""
    whole = {each.pk for each in departments(acting) if may(acting, Action.EDIT, each)}
    mine = set(
        Membership.objects.filter(user=acting.user, project__isnull=False).values_list("project", flat=True)
    )
    return [
        project.name
        for project in projects(acting)
        if project.department_id in whole or (project.pk in mine and may(acting, Action.SUBMIT, project))
    ]
