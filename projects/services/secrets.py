"""Project and user secrets, and the secret values that pods and image pulls receive.

A project's secret overrides the pool's secret of the same name.
"""

import base64
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from berth.core.errors import BerthError, Forbidden
from berth.core.masking import PATTERNS_MAX, Masker, build_masker
from berth.core.spec import WorkloadSpec
from berth.core.spec.roles import SecretUse as DeclaredUse
from pools.joining.sealed import UnsealError, unseal
from pools.models import NodePool, PoolSecret, SecretKind
from pools.models.secret import Secret
from pools.services.secrets import SecretContent, secret_summary, store_secret
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Project, ProjectSecret, SecretUse, SecretValue, UserSecret
from projects.services import announce, audit

log = logging.getLogger(__name__)


class UnusableSecret(BerthError):
    """Raised if a secret for a pod or an image pull was deleted or cannot be decrypted."""

    code, status, title = "unusable_secret", 409, "A secret cannot be used"


class MissingSecret(UnusableSecret):
    """Raised if a secret that a pod needs does not exist."""


def set_project_secret(
    *,
    actor: Actor,
    project: Project,
    name: str,
    content: SecretContent,
    at: datetime,
    expected_version: int | None = None,
) -> tuple[ProjectSecret, bool]:
    """Create or replace a project's secret.

    Return the secret and whether it is new. Raises Forbidden, Invalid, SecretExists, or Conflict for too many
    secrets or a second set of credentials for a registry.
    """
    require(actor, Action.SET_SECRETS, project)
    with transaction.atomic():
        secret, before = store_secret(
            ProjectSecret, {"project": project}, name, content, by=actor.name, at=at,
            expected_version=expected_version,
        )  # fmt: skip
        after = secret_summary(secret)
        audit.write_entry(actor, "set_secret", secret, before=before, after=after, project=project)
        announce.tenants_changed(project_id=project.pk)
    return secret, before is None


def delete_project_secret(*, actor: Actor, secret: ProjectSecret) -> None:
    require(actor, Action.SET_SECRETS, secret.project)
    with transaction.atomic():
        audit.write_entry(
            actor, "delete_secret", secret, before=secret_summary(secret), project=secret.project
        )
        announce.tenants_changed(project_id=secret.project_id)
        secret.delete()


def set_personal_secret(
    *, actor: Actor, name: str, content: SecretContent, at: datetime, expected_version: int | None = None
) -> tuple[UserSecret, bool]:
    """Create or replace a personal secret of the user.

    Return the secret and whether it is new. Raises Invalid, SecretExists, Forbidden for a component, and
    Conflict for too many secrets.
    """
    if actor.user is None:
        raise Forbidden("Only users have personal secrets. Sign in as a user.")
    with transaction.atomic():
        secret, before = store_secret(
            UserSecret, {"user": actor.user}, name, content, by=actor.name, at=at,
            expected_version=expected_version,
        )  # fmt: skip
        audit.write_entry(actor, "set_secret", secret, before=before, after=secret_summary(secret))
    return secret, before is None


def delete_personal_secret(*, actor: Actor, secret: UserSecret) -> None:
    """Delete a personal secret of the user. Raises Forbidden if it belongs to another user."""
    if actor.user is None or actor.user.pk != secret.user_id:
        raise Forbidden("Only the owner of a personal secret may delete it.")
    with transaction.atomic():
        audit.write_entry(actor, "delete_secret", secret, before=secret_summary(secret))
        secret.delete()


def require_submitter_for_personal_secrets(
    actor: Actor, specs: Iterable[WorkloadSpec | None], submitter_id: int | None
) -> None:
    """Raise Forbidden if a document uses personal secrets and the actor did not submit the documents.

    Without this check, an edit of the command could reveal another user's secrets.
    """
    if actor.user is not None and actor.user.pk == submitter_id:
        return
    if any(spec.uses_personal_secrets for spec in specs if spec is not None):
        raise Forbidden("This document uses personal secrets, so only its submitter may change it.")


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """Credentials for image pulls: the text of an auth.json file, and the secret for each registry.

    The text may be "".
    """

    json: str = field(default="", repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)

    def secret_for_image(self, image_name: str) -> Secret | None:
        """Return the secret used to pull an image such as registry.example.org/team/train, or None."""
        matches = [name for name in self.secrets if f"{image_name}/".startswith(f"{name}/")]
        return self.secrets[max(matches, key=len)] if matches else None


def registry_auths(keys: Collection[tuple[int, int]]) -> dict[tuple[int, int], RegistryAuth | UnusableSecret]:
    """Return the credentials for image pulls, keyed by (project, pool).

    `keys` are pairs of primary keys. A project's credentials override the pool's for the same registry. If a
    secret cannot be used, its value is the error.
    """
    of_projects, of_pools = defaultdict[int, list[Secret]](list), defaultdict[int, list[Secret]](list)
    for secret in ProjectSecret.objects.filter(
        project__in={project for project, _ in keys}, kind=SecretKind.REGISTRY
    ):
        of_projects[secret.project_id].append(secret)
    for pool_secret in PoolSecret.objects.filter(
        pool__in={pool for _, pool in keys}, kind=SecretKind.REGISTRY
    ):
        of_pools[pool_secret.pool_id].append(pool_secret)
    auths: dict[tuple[int, int], RegistryAuth | UnusableSecret] = {}
    for project, pool in keys:
        try:
            auths[project, pool] = _registry_auth([*of_pools[pool], *of_projects[project]])
        except UnusableSecret as error:
            auths[project, pool] = error
    return auths


def _registry_auth(rows: Sequence[Secret]) -> RegistryAuth:
    if not rows:
        return RegistryAuth()
    logins = {row.registry: f"{row.username}:{unseal_secret(row)}".encode() for row in rows}
    auths = {registry: {"auth": base64.b64encode(login).decode()} for registry, login in logins.items()}
    return RegistryAuth(json.dumps({"auths": auths}), {row.registry: row for row in rows})


def missing_secret_error(use: DeclaredUse, project: Project, pool: NodePool) -> MissingSecret:
    if use.personal:
        return MissingSecret(
            f"The submitter has no personal secret {use.name}, and can set it with "
            f"`berth secret set {use.name} --personal`."
        )
    return MissingSecret(
        f"The secret {use.name} is neither in project {project.name} nor in pool {pool.name}. Set it "
        f"with `berth secret set {use.name} --project {project.name}`."
    )


def secrets_by_name(project: Project, pool: NodePool) -> dict[str, Secret]:
    """Return the pod secrets that the project can use in the pool."""
    rows: list[Secret] = [
        *PoolSecret.objects.filter(pool=pool, kind=SecretKind.VALUE),
        *ProjectSecret.objects.filter(project=project, kind=SecretKind.VALUE),
    ]
    return {row.name: row for row in rows}


def personal_secrets_by_name(user_id: int | None) -> dict[str, Secret]:
    """Return a user's personal secrets, keyed by name. The result is empty if `user_id` is None."""
    if user_id is None:
        return {}
    return {row.name: row for row in UserSecret.objects.select_related("user").filter(user=user_id)}


def unseal_secret(row: Secret) -> str:
    """Return the secret's value. Raises UnusableSecret if it cannot be decrypted."""
    try:
        return unseal(row.sealed)
    except UnsealError as error:
        raise UnusableSecret(f"The secret {row.name} cannot be used: {error}.") from None


def workload_maskers(workload_ids: Collection[UUID]) -> dict[UUID, Masker]:
    """Return maskers for the secrets that runs of the workloads received.

    Workloads without secrets are omitted. Values beyond the maximum number, and values whose encryption key
    is gone, are not masked.
    """
    uses = SecretUse.objects.filter(workload__in=workload_ids).order_by("-value__used_at")
    sealed_values = defaultdict[UUID, dict[str, None]](dict)
    for workload_id, sealed in uses.values_list("workload_id", "value__sealed").distinct():
        sealed_values[workload_id][sealed] = None
    maskers = {pk: build_masker(_unsealed_values(values)) for pk, values in sealed_values.items()}
    for workload_id, masker in maskers.items():
        if masker.is_partial:
            _warn_about_unmasked_lines(workload_id)
    return maskers


@lru_cache(maxsize=10_000)
def _warn_about_unmasked_lines(workload_id: UUID) -> None:
    """Warn, once per workload, that secrets with very many lines may not be fully masked."""
    log.warning(
        "the secrets of workload %s have too many lines: its logs are masked with only %d patterns",
        workload_id, PATTERNS_MAX,
    )  # fmt: skip


def _unsealed_values(sealed_values: Iterable[str]) -> Iterator[str]:
    for sealed in sealed_values:
        try:
            yield unseal(sealed)
        except UnsealError:
            log.warning("a former value of a secret cannot be decrypted, and is not masked in logs")


def delete_unused_values(*, before: datetime) -> int:
    """Delete values that no stored run received and that were last used before the given time.

    Return the number of deleted values.
    """
    unused = SecretValue.objects.filter(~Exists(SecretUse.objects.filter(value=OuterRef("pk"))))
    unused = unused.filter(used_at__lt=before)
    # Use a single statement, so that it skips values that a run starts using at the same time.
    return int(unused._raw_delete(unused.db))
