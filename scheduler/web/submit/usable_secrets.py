"""Secrets that a user can name in a document."""

from collections import defaultdict
from collections.abc import Iterable

from berth.core.wording.words import join_words
from pools.models import NodePool, SecretKind
from projects.actor import Actor
from projects.selectors import personal_secrets, pool_secrets, project_secrets
from scheduler.web.submit.form.secret_choices import SecretChoice

PERSONAL = "Personal"


def pod_secrets(actor: Actor, project: object, pools: Iterable[NodePool]) -> list[SecretChoice]:
    """Return the secrets that pods of the project can receive in any of the pools, grouped by owner.

    A project's secret overrides the pool's secret of the same name.
    """
    of_project = _project_secrets(actor, project, (SecretKind.VALUE,))
    overridden = {each.name for each in of_project}
    pools_by_name: dict[str, list[str]] = defaultdict(list)
    rows = pool_secrets(actor).filter(pool__in=pools, kind=SecretKind.VALUE).order_by("name", "pool__name")
    for name, pool in rows.values_list("name", "pool__name"):
        pools_by_name[name].append(pool)
    of_pools = [
        SecretChoice(name, f"Pool{'s' if len(names) > 1 else ''} {join_words(names)}")
        for name, names in pools_by_name.items()
        if name not in overridden
    ]
    return [
        *of_project,
        *sorted(of_pools, key=lambda each: (each.owner, each.name)),
        *_personal_secrets(actor),
    ]


def git_secrets(actor: Actor, project: object) -> list[SecretChoice]:
    """Return the secrets with which the server can fetch the project's code, grouped by owner."""
    kinds = (SecretKind.VALUE, SecretKind.SSH_KEY)
    return [*_project_secrets(actor, project, kinds), *_personal_secrets(actor)]


def _project_secrets(actor: Actor, project: object, kinds: Iterable[SecretKind]) -> list[SecretChoice]:
    if not isinstance(project, str):
        return []
    rows = project_secrets(actor).filter(project__name=project.replace("\x00", ""), kind__in=kinds)
    return [SecretChoice(name, f"Project {project}") for name in rows.values_list("name", flat=True)]


def _personal_secrets(actor: Actor) -> list[SecretChoice]:
    names = personal_secrets(actor).order_by("name").values_list("name", flat=True)
    return [SecretChoice(name, PERSONAL, is_personal=True) for name in names]
