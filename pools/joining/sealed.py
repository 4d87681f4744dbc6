"""Encrypt secrets with this installation's key, so that they can be stored."""

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

SALT = b"berth.pools.sealed"


class UnsealError(Exception):
    """Raised if a secret cannot be decrypted, for example because the installation no longer has its key."""


def seal(secret: str) -> str:
    return _encryption_keys().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    try:
        return _encryption_keys().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise UnsealError(
            "the secret was encrypted with a different BERTH_SECRET_KEY. Set the secret again"
        ) from None


def _encryption_keys() -> MultiFernet:
    """Return the current key, then the former keys. Former keys are used only for decryption."""
    keys = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet([Fernet(_derive_key(key)) for key in keys])


def _derive_key(key: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(SALT + key.encode()).digest())
