"""Read the secrets of starting pods, and record which runs receive which version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from berth.db.crash_points import assert_no_transaction, crash_point
from berth.db.lease import fenced_transaction
from pools.models.secret import Secret
from pools.services.environments import environment_secrets
from projects.models import Pod, ProjectSecret, SecretUse
from projects.services.secrets import secret_values, secrets_by_name
from scheduler.loop.context import SchedulerContext


@dataclass(slots=True)
class SecretReader:
    """Reader of secrets for pods that start together. It reads a project's secrets in a pool only once."""

    _declared: dict[tuple[int, int], Mapping[str, Secret]] = field(default_factory=dict, repr=False)
    _plugins: dict[tuple[int, str], Mapping[str, str]] = field(default_factory=dict, repr=False)

    def declared_values(self, pod: Pod, names: Iterable[str]) -> dict[str, str]:
        """Return the current values of a project's secrets. Raises MissingSecret or UnusableSecret."""
        return secret_values(pod.workload.project, pod.node.pool, names, self.declared(pod))

    def declared(self, pod: Pod) -> Mapping[str, Secret]:
        """Return the secrets that the pod may use by name, with encrypted values."""
        project, pool = pod.workload.project, pod.node.pool
        key = (project.pk, pool.pk)
        if key not in self._declared:
            self._declared[key] = secrets_by_name(project, pool)
        return self._declared[key]

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
            secret = reader.declared(pod).get(declared.name)
            if secret is not None:
                use = _build_use(pod, secret)
                uses[use.workload_id, use.run, use.owner_kind, use.owner, use.name] = use
    if not uses:
        return
    with fenced_transaction(context.held_lease):
        SecretUse.objects.bulk_create(uses.values(), ignore_conflicts=True)
    crash_point("dispatch.secret_uses")


def _build_use(pod: Pod, secret: Secret) -> SecretUse:
    if isinstance(secret, ProjectSecret):
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
