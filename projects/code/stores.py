"""Choose the store of the installation."""

from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from projects.code.base import ChunkStore
from projects.code.disk import DiskStore

FORM = "s3://BUCKET/PREFIX, or an absolute path"


def open_store() -> ChunkStore:
    """Return the store in BERTH_CODE_STORE. Raises ImproperlyConfigured."""
    return _open(str(settings.BERTH_CODE_STORE), str(settings.BERTH_CODE_S3_ENDPOINT))


@cache
def _open(address: str, endpoint: str) -> ChunkStore:
    if address.startswith("/"):
        return DiskStore(Path(address))
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc:
        raise ImproperlyConfigured(f"BERTH_CODE_STORE is {address!r}. Set it to {FORM}.")
    try:
        from projects.code.s3 import S3Store
    except ImportError:
        message = "BERTH_CODE_STORE needs boto3. Run `pip install 'berth-platform[aws]'`."
        raise ImproperlyConfigured(message) from None
    return S3Store(parts.netloc, parts.path, endpoint=endpoint)
