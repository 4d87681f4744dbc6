"""Encrypt secrets with the installation's key before they are stored."""

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

SALT = b"berth.pools.sealed"


class Unopened(Exception):
    """The secret was sealed with a key that this installation no longer has."""


def seal(secret: str) -> str:
    return _keys().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    try:
        return _keys().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise Unopened("encrypted with another BERTH_SECRET_KEY; set it again") from None


def _keys() -> MultiFernet:
    """Return the current key, which seals, and the former ones, which still unseal."""
    keys = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(SALT + key.encode()).digest())
