"""Read the secrets of starting pods, and record the versions that each run receives."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from berth.core.spec.roles import SecretUse as DeclaredUse
from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from pools.models import PluginSecret, PoolSecret
from pools.models.secret import Secret
from pools.services.environments import plugin_secrets
from projects.models import Pod, ProjectSecret, SecretUse, SecretValue, UserSecret
from projects.services.secrets import (
    missing_secret_error,
    personal_secrets_by_name,
    secrets_by_name,
    unseal_secret,
)
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.starts.images import RunImages

AnySecret = Secret | PluginSecret
VALUE_KINDS = {
    ProjectSecret: SecretValue.Kind.PROJECT,
    PoolSecret: SecretValue.Kind.POOL,
    UserSecret: SecretValue.Kind.USER,
    PluginSecret: SecretValue.Kind.PLUGIN,
}


@dataclass(slots=True)
class SecretReader:
    """Reader of secrets for pods that start together. It reads each owner's secrets only once."""

    _personal: dict[int | None, Mapping[str, Secret]] = field(default_factory=dict, repr=False)
    _declared: dict[tuple[int, int], Mapping[str, Secret]] = field(default_factory=dict, repr=False)
    _plugins: dict[tuple[int, str], Sequence[PluginSecret]] = field(default_factory=dict, repr=False)

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

    def plugin_secrets(self, pod: Pod, declared: Container[str]) -> list[PluginSecret]:
        """Return the pool's plugin secrets, except those for variables that the document declares."""
        key = (pod.node.pool_id, pod.node.environment_id or "")
        if key not in self._plugins:
            self._plugins[key] = plugin_secrets(pod.node.pool, pod.node.environment)
        return [secret for secret in self._plugins[key] if secret.variable not in declared]


def record_secret_uses(
    pods: Iterable[Pod], images: RunImages, reader: SecretReader, now: datetime, context: SchedulerContext
) -> None:
    """Record once per run which versions of secrets the pods will receive.

    Must be called before the pods start.
    """
    assert_no_transaction()
    uses: dict[tuple[object, ...], SecretUse] = {}
    values: dict[tuple[object, ...], SecretValue] = {}
    for pod in pods:
        for secret in _secrets_for_pod(pod, images, reader, context):
            use, value = _build_use_row(pod, secret), _build_value_row(secret, now)
            key = (value.kind, value.secret, value.version)
            use.value = values.setdefault(key, value)
            uses[use.workload_id, use.run, *key] = use
    if not uses:
        return
    with fenced_transaction(context.held_lease):
        SecretValue.objects.bulk_create(
            [values[key] for key in sorted(values, key=str)],
            update_conflicts=True, unique_fields=["kind", "secret", "version"], update_fields=["used_at"],
        )  # fmt: skip
        for use in uses.values():
            use.value_id = use.value.pk
        SecretUse.objects.bulk_create(uses.values(), ignore_conflicts=True)
    crash_point("dispatch.secret_uses")


def _secrets_for_pod(
    pod: Pod, images: RunImages, reader: SecretReader, context: SchedulerContext
) -> Iterator[AnySecret]:
    spec = context.specs.get(pod.workload).spec
    role = next((role for role in spec.all_roles if role.name == pod.role), None) if spec else None
    if spec is None or role is None:
        return
    declared = spec.role_secrets(role)
    for declared_use in declared:
        secret = reader.find(pod, declared_use)
        if secret is not None:
            yield secret
    yield from reader.plugin_secrets(pod, {*spec.role_env(role), *(use.env for use in declared if use.env)})
    image = images.ready.get(pod.workload_id)
    if image is not None and image.secret is not None:
        yield image.secret


def _build_use_row(pod: Pod, secret: AnySecret) -> SecretUse:
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


def _build_value_row(secret: AnySecret, now: datetime) -> SecretValue:
    kind = next(kind for model, kind in VALUE_KINDS.items() if isinstance(secret, model))
    return SecretValue(kind=kind, secret=secret.pk, version=secret.version, sealed=secret.sealed, used_at=now)
