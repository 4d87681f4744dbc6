"""Read the secrets of starting pods, and record the versions that each run receives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from berth.core.spec.roles import SecretUse as DeclaredUse
from berth.db.crash_points import assert_no_transaction, crash_point
from berth.db.lease import fenced_transaction
from pools.models.secret import Secret
from pools.services.environments import environment_secrets
from projects.models import Pod, ProjectSecret, SecretUse, UserSecret
from projects.services.secrets import (
    missing_secret_error,
    personal_secrets_by_name,
    secrets_by_name,
    unseal_secret,
)
from scheduler.loop.context import SchedulerContext


@dataclass(slots=True)
class SecretReader:
    """Reader of secrets for pods that start together. The secrets of each owner are read only once."""

    _personal: dict[int | None, Mapping[str, Secret]] = field(default_factory=dict, repr=False)
    _declared: dict[tuple[int, int], Mapping[str, Secret]] = field(default_factory=dict, repr=False)
    _plugins: dict[tuple[int, str], Mapping[str, str]] = field(default_factory=dict, repr=False)

    def read(self, pod: Pod, use: DeclaredUse) -> str:
        """Return the current value of a declared secret. Raises MissingSecret or UnusableSecret."""
        secret = self.find(pod, use)
        if secret is None:
            raise missing_secret_error(use, pod.workload.project, pod.node.pool)
        return unseal_secret(secret)

    def find(self, pod: Pod, use: DeclaredUse) -> Secret | None:
        """Return a declared secret, or None if it does not exist."""
        if use.personal:
            user_id = pod.workload.submitted_by_id
            if user_id not in self._personal:
                self._personal[user_id] = personal_secrets_by_name(user_id)
            return self._personal[user_id].get(use.name)
        project, pool = pod.workload.project, pod.node.pool
        key = (project.pk, pool.pk)
        if key not in self._declared:
            self._declared[key] = secrets_by_name(project, pool)
        return self._declared[key].get(use.name)

    def plugin_values(self, pod: Pod) -> Mapping[str, str]:
        """Return the secrets of the pool's plugins by variable. Raises UnsealError."""
        key = (pod.node.pool_id, pod.node.environment_id or "")
        if key not in self._plugins:
            self._plugins[key] = environment_secrets(pod.node.pool, pod.node.environment)
        return self._plugins[key]


def record_secret_uses(pods: Iterable[Pod], reader: SecretReader, context: SchedulerContext) -> None:
    """Record the versions of secrets that the pods will receive, once per run. No pod has started yet."""
    assert_no_transaction()
    uses: dict[tuple[object, ...], SecretUse] = {}
    for pod in pods:
        spec = context.specs.get(pod.workload).spec
        role = next((role for role in spec.all_roles if role.name == pod.role), None) if spec else None
        for declared in spec.role_secrets(role) if spec and role else ():
            secret = reader.find(pod, declared)
            if secret is not None:
                use = _build_use(pod, secret)
                uses[use.workload_id, use.run, use.owner_kind, use.owner, use.name] = use
    if not uses:
        return
    with fenced_transaction(context.held_lease):
        SecretUse.objects.bulk_create(uses.values(), ignore_conflicts=True)
    crash_point("dispatch.secret_uses")


def _build_use(pod: Pod, secret: Secret) -> SecretUse:
    if isinstance(secret, UserSecret):
        kind, owner = SecretUse.Owner.USER, secret.user.get_username()
    elif isinstance(secret, ProjectSecret):
        kind, owner = SecretUse.Owner.PROJECT, pod.workload.project.name
    else:
        kind, owner = SecretUse.Owner.POOL, pod.node.pool.name
    return SecretUse(
        workload_id=pod.workload_id,
        run=pod.run,
        owner_kind=kind,
        owner=owner,
        name=secret.name,
        version=secret.version,
    )
