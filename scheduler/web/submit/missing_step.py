"""Setup step that is missing before workloads can be submitted."""

from dataclasses import dataclass

from django.urls import reverse

from projects.access import Action, administered_departments, may, visible_pools
from projects.actor import Actor
from scheduler.web.submit.form_choices import submittable_projects


@dataclass(frozen=True, slots=True)
class MissingStep:
    """Missing object, and the page where it can be created. `path` is empty if the user cannot create it."""

    title: str
    text: str
    mark: str
    path: str = ""
    label: str = ""


def find_missing_step(actor: Actor) -> MissingStep | None:
    """Return the first missing step, or None if the user can submit workloads."""
    if not visible_pools(actor).exists():
        text = "Workloads run on the nodes of a pool."
        if may(actor, Action.ADMINISTER):
            text, path = f"{text} Create the first pool, then submit workloads to it.", reverse("pool-new")
            return MissingStep("No node pools yet", text, "pools", path, "Create node pool")
        return MissingStep("No node pools yet", f"{text} Ask a platform admin to create one.", "pools")
    if submittable_projects(actor):
        return None
    text = "Every workload belongs to a project of a department."
    if may(actor, Action.ADMINISTER) or administered_departments(actor).exists():
        text, path = f"{text} Create the first project on the Quotas page.", reverse("quotas")
        return MissingStep("No projects yet", text, "quotas", path, "Go to quotas")
    return MissingStep("No projects yet", f"{text} Ask an admin of your department to create one.", "quotas")
