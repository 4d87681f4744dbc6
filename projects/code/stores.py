"""Open the code store that the installation's settings select."""

from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from projects.code.base import ChunkStore, StoreFailure
from projects.code.disk import DiskStore


def open_store() -> ChunkStore:
    """Return the store that BERTH_CODE_STORE specifies.

    Raises StoreFailure if boto3 is not installed for S3.
    """
    return _open_store(str(settings.BERTH_CODE_STORE), str(settings.BERTH_CODE_S3_ENDPOINT))


@cache
def _open_store(address: str, endpoint: str) -> ChunkStore:
    if address.startswith("/"):
        return DiskStore(Path(address))
    parts = urlsplit(address)
    try:
        from projects.code.s3 import S3Store
    except ImportError:
        raise StoreFailure(
            "The server stores code in S3, but boto3 is not installed there. Ask an admin to run "
            "`pip install 'berth-platform[aws]'`."
        ) from None
    return S3Store(parts.netloc, parts.path, endpoint=endpoint)
