"""Set and delete secrets. Their values are encrypted and never appear in responses, history or errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from django.db import IntegrityError, transaction

from berth.core.errors import Conflict, Invalid
from berth.core.masking import BYTES_MIN, is_maskable
from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import NAME, NAME_ALLOWED, find_control_character
from pools.joining.sealed import UnsealError, seal, unseal
from pools.models import NodePool, PoolSecret, SecretKind
from pools.models.secret import Secret
from pools.signals import changed

S = TypeVar("S", bound=Secret)
VALUE_BYTES_MAX = 64 * 1024
USERNAME_MAX = 255
PER_OWNER_MAX = 200
REGISTRY = re.compile(
    r"(?=.{1,255}\Z)([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*",
    re.ASCII,
)
ACCESS_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)

SHORT_VALUE = f"Logs do not mask this value, because none of its lines has {BYTES_MIN} bytes or more."


class SecretExists(Conflict):
    """Raised if a secret already exists, or if its version is not the expected version."""

    def __init__(self, secret: Secret) -> None:
        super().__init__(f"The secret {secret.name} exists in version {secret.version}.")
        self.secret = secret


@dataclass(frozen=True)
class SecretContent:
    """Content of a secret: a value for pods, or credentials for a registry, SSH hosts or S3.

    `username` is the registry's username, or the ID of the access key.
    """

    value: str = field(repr=False)
    registry: str = ""
    username: str = ""
    is_ssh_key: bool = False
    is_s3_key: bool = False

    @property
    def kind(self) -> SecretKind:
        if self.is_s3_key:
            return SecretKind.S3_KEY
        if self.is_ssh_key:
            return SecretKind.SSH_KEY
        return SecretKind.REGISTRY if self.registry or self.username else SecretKind.VALUE

    @property
    def warnings(self) -> list[str]:
        is_unmasked = self.kind == SecretKind.VALUE and not is_maskable(self.value)
        return [SHORT_VALUE] if is_unmasked else []


def set_pool_secret(
    *,
    actor: Any,
    pool: NodePool,
    name: str,
    content: SecretContent,
    at: datetime,
    expected_version: int | None = None,
) -> tuple[PoolSecret, bool]:
    """Create or replace a pool's secret.

    Return the secret, and whether it is new. Raises Invalid or SecretExists. Raises Conflict if the pool has
    too many secrets or already has credentials for the registry.
    """
    with transaction.atomic():
        secret, before = store_secret(
            PoolSecret, {"pool": pool}, name, content, by=actor.name, at=at, expected_version=expected_version
        )
        changed.send(
            NodePool, actor=actor, action="set_secret", obj=pool, before=before, after=secret_summary(secret)
        )
    return secret, before is None


def delete_pool_secret(*, actor: Any, secret: PoolSecret) -> None:
    with transaction.atomic():
        changed.send(
            NodePool, actor=actor, action="delete_secret", obj=secret.pool, before=secret_summary(secret),
            after=None,
        )  # fmt: skip
        secret.delete()


def store_secret(
    model: type[S],
    owner: Mapping[str, Any],
    name: str,
    content: SecretContent,
    *,
    by: str,
    at: datetime,
    expected_version: int | None = None,
) -> tuple[S, dict[str, str] | None]:
    """Store a secret without a permission check or an audit entry.

    Return the secret, and the summary of the secret that it replaced, if any. Only the version
    `expected_version` may be replaced: 0 means that the secret must not exist yet, and None allows any
    version. Raises Invalid, SecretExists and Conflict.
    """
    _check_secret(name, content)
    rows = model._default_manager.filter(**owner)
    place = " ".join(str(each) for each in owner.values())
    before = rows.select_for_update().filter(name=name).first()
    if before is not None and expected_version not in (None, before.version):
        raise SecretExists(before)
    if before is None and rows.count() >= PER_OWNER_MAX:
        raise Conflict(f"{place} already has {PER_OWNER_MAX} secrets. Delete one first.")
    values = {
        "kind": content.kind, "registry": content.registry, "username": content.username,
        "sealed": seal(content.value), "updated_at": at, "updated_by": by,
    }  # fmt: skip
    if before is not None:
        values["version"] = before.version + (_decrypt_content(before) != content)
    try:
        with transaction.atomic():
            new_values = {**values, "created_at": at, "created_by": by}
            if before is None and expected_version is not None:
                secret = rows.create(**owner, name=name, **new_values)
            else:
                secret, _ = model._default_manager.update_or_create(
                    **owner, name=name, defaults=values, create_defaults=new_values
                )
    except IntegrityError as error:
        if "registry_once" not in str(error):
            if existing := rows.filter(name=name).first():  # a concurrent request created the secret
                raise SecretExists(existing) from None
            raise
        other = rows.get(registry=content.registry)
        raise Conflict(
            f"{place} already has credentials for {content.registry} in the secret {other.name}. "
            "Change or delete that secret.",
        ) from None
    return secret, None if before is None else secret_summary(before)


def secret_summary(secret: Secret) -> dict[str, str]:
    """Return a secret's properties for the history, without its value."""
    summary = {"secret": secret.name, "kind": str(secret.kind), "version": str(secret.version)}
    if secret.kind == SecretKind.REGISTRY:
        summary |= {"registry": secret.registry, "username": secret.username}
    if secret.kind == SecretKind.S3_KEY:
        summary |= {"access_key_id": secret.username}
    return summary


def _decrypt_content(secret: Secret) -> SecretContent | None:
    """Return the secret's content, or None if it cannot be decrypted."""
    try:
        value = unseal(secret.sealed)
    except UnsealError:
        return None
    kind = secret.kind
    return SecretContent(
        value, secret.registry, secret.username, kind == SecretKind.SSH_KEY, kind == SecretKind.S3_KEY
    )


def _check_secret(name: str, content: SecretContent) -> None:
    problems = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", "is not a valid name", format_value(name), NAME_ALLOWED))
    path = "value"
    if content.kind == SecretKind.REGISTRY:
        path = "password"
        if not REGISTRY.fullmatch(content.registry):
            allowed = "a host with an optional port and path, such as registry.example.org:5000"
            problems.append(
                Problem("registry", "is not a valid registry", format_value(content.registry), allowed)
            )
        if not _is_username(content.username):
            allowed = f"1 to {USERNAME_MAX} printable characters without a colon"
            problems.append(
                Problem("username", "is not a valid username", format_value(content.username), allowed)
            )
    if content.kind == SecretKind.S3_KEY:
        path = "secret_access_key"
        if not ACCESS_KEY_ID.fullmatch(content.username):
            allowed = "1 to 128 letters, digits and . _ -"
            received = format_value(content.username)
            problems.append(Problem("access_key_id", "is not a valid access key ID", received, allowed))
    if reason := _value_problem(content.value):
        allowed = f"1 to {VALUE_BYTES_MAX:,} bytes of UTF-8 text without NUL"
        problems.append(Problem(path, reason, "", allowed))
    elif content.is_ssh_key and (reason := private_key_problem(content.value)):
        problems.append(Problem("ssh_key", reason, "", "a private key in OpenSSH format"))
    if problems:
        raise Invalid(problems)


def private_key_problem(text: str) -> str:
    """Return why the text cannot be used as an SSH private key, or "" if it can. The key must not have a
    passphrase.
    """
    content = text.strip().encode() + b"\n"
    is_openssh = b"OPENSSH PRIVATE KEY" in content
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    try:
        load(content, password=None)
    except TypeError:
        return "is protected by a passphrase. Remove the passphrase with `ssh-keygen -p`, or use another key"
    except (ValueError, UnsupportedAlgorithm):
        return "is not a valid private key"
    return ""


def _is_username(text: str) -> bool:
    return 0 < len(text) <= USERNAME_MAX and ":" not in text and not find_control_character(text)


def _value_problem(value: str) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    if not size:
        return "is empty"
    if "\0" in value:
        return "contains NUL"
    return "is too long" if size > VALUE_BYTES_MAX else ""
