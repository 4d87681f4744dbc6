"""Credentials for pools' S3 volumes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value, suggest
from pools.engine.volumes import Volume, read_volumes
from pools.joining.sealed import UnsealError, unseal
from pools.models import NodePool, PoolSecret, SecretKind

NO_BOTO3 = "needs boto3, which is not installed on the server. Run `pip install 'berth-platform[aws]'`"


@dataclass(frozen=True)
class BucketLogin:
    """Access key for an object store. If its ID is empty, the server's own identity is used."""

    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)


def find_login(pool: NodePool, volume: Volume) -> BucketLogin:
    """Return the credentials for a volume. Raises Conflict if the volume's secret is missing or unusable."""
    if not volume.secret:
        return BucketLogin()
    secret = _s3_keys(pool).filter(name=volume.secret).first()
    if secret is None:
        raise Conflict(f"The volume's secret, {volume.secret}, does not exist. Ask an admin to create it.")
    try:
        return BucketLogin(secret.username, unseal(secret.sealed))
    except UnsealError as error:
        raise Conflict(f"The volume's secret cannot be used: {error}. Contact an admin.") from None


def check_volume_logins(pool: NodePool, stored: Iterable[Mapping[str, Any]]) -> None:
    """Raise Invalid if the server cannot read one of the pool's volumes, for example if credentials are
    missing.
    """
    problems = []
    for number, volume in enumerate(read_volumes(stored)):
        if volume.is_synced and find_spec("boto3") is None:
            problems.append(Problem(f"volumes[{number}].source", NO_BOTO3, format_value(volume.source)))
        names = list(_s3_keys(pool).values_list("name", flat=True)) if volume.secret and pool.pk else []
        if volume.secret and volume.secret not in names:
            command = f"berth secret set {volume.secret} --pool {pool.name} --access-key-id ID"
            remedy = f"Set it with `{command}` before the volume"
            allowed = f"{suggest(volume.secret, names)}. {remedy}" if names else remedy
            message = "is not a secret of this pool with an S3 access key"
            problems.append(
                Problem(f"volumes[{number}].secret", message, format_value(volume.secret), allowed)
            )
    if problems:
        raise Invalid(problems)


def _s3_keys(pool: NodePool) -> Any:
    return PoolSecret.objects.filter(pool=pool, kind=SecretKind.S3_KEY)
