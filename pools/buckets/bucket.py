"""List an S3 volume's objects, and sign the URLs for downloads.

Error messages contain no address, bucket or key ID, because users must not learn where a volume is stored.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as StoreUnreachable

from berth.core.errors import BerthError, Conflict, Unavailable
from pools.buckets.logins import BucketLogin
from pools.engine.volumes import Volume

DEFAULT_REGION = "us-east-1"
URL_SECONDS = 3600
CONNECT_SECONDS, READ_SECONDS = 5, 20
DENIED = ("AccessDenied", "403", "AllAccessDisabled", "AccountProblem")
BAD_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
MISSING = ("NoSuchBucket", "404")
ELSEWHERE = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "301",
    "307",
    "IllegalLocationConstraintException",
)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """Object of an S3 volume. `path` is relative to the volume's prefix, and `modified` is a Unix time."""

    path: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Page of a listing. `next` is the token of the next page, or empty on the last page."""

    objects: list[ListedObject]
    next: str


class Bucket:
    """Access to the objects of an S3 volume. Its methods must not be called inside a transaction."""

    def __init__(self, volume: Volume, login: BucketLogin) -> None:
        self._volume = volume
        self._s3 = s3_client(volume.endpoint, volume.region, login)

    def list_page(self, after: str = "") -> ObjectPage:
        """Return a page of up to 1,000 objects.

        Raises Conflict if the bucket cannot be used with the volume's settings, or Unavailable if a retry may
        succeed.
        """
        more = {"ContinuationToken": after} if after else {}
        prefix = self._volume.prefix
        with translate_errors():
            answer = self._s3.list_objects_v2(Bucket=self._volume.bucket, Prefix=prefix, **more)
        objects = [
            ListedObject(
                entry["Key"].removeprefix(prefix), entry["Size"], entry["ETag"],
                entry["LastModified"].timestamp(),
            )
            for entry in answer.get("Contents", ())
        ]  # fmt: skip
        return ObjectPage(objects, answer.get("NextContinuationToken", ""))

    def sign_urls(self, objects: Sequence[tuple[str, str]]) -> list[str]:
        """Return a signed URL for each (path, ETag) pair, valid while the object keeps its ETag.

        Raises Conflict if there are no usable credentials.
        """
        with translate_errors():
            return [
                self._s3.generate_presigned_url(
                    "get_object",
                    {"Bucket": self._volume.bucket, "Key": self._volume.prefix + path, "IfMatch": etag},
                    ExpiresIn=URL_SECONDS,
                )
                for path, etag in objects
            ]


@lru_cache(maxsize=64)
def s3_client(endpoint: str, region: str, login: BucketLogin) -> Any:
    config = Config(
        signature_version="s3v4", connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},
        s3={"addressing_style": "path" if endpoint else "auto"},
    )  # fmt: skip
    # Threads cannot safely share boto3's default session while it creates clients.
    session = boto3.session.Session(
        aws_access_key_id=login.access_key_id or None,
        aws_secret_access_key=login.secret_access_key or None,
    )
    return session.client(
        "s3", endpoint_url=endpoint or None, region_name=region or DEFAULT_REGION, config=config
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Convert errors from the object store to Unavailable if they may be temporary, otherwise to Conflict."""
    try:
        yield
    except ClientError as error:
        raise _translate_error(error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise Conflict(
            "The server has no credentials for the volume. Ask an admin to set the volume's secret."
        ) from error
    except (HTTPClientError, StoreUnreachable) as error:
        raise Unavailable(f"The object store is not responding ({type(error).__name__}).") from error
    except BotoCoreError as error:
        raise Conflict(
            f"The object store cannot be used ({type(error).__name__}). Contact an admin."
        ) from error


def _translate_error(error: ClientError) -> BerthError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in MISSING:
        return Conflict("The bucket does not exist. Contact an admin.")
    if code in BAD_KEYS:
        return Conflict(
            f"The object store rejects the credentials ({code}). Ask an admin to renew the secret."
        )
    if code in DENIED:
        return Conflict(f"The credentials do not allow this ({code}). Contact an admin.")
    if code in ELSEWHERE:
        return Conflict(f"The bucket is in another region ({code}). Ask an admin to set the volume's region.")
    if status >= 500 or status == 429 or code in ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed"):
        return Unavailable(f"The object store is overloaded or has failed ({code or status}).")
    return Conflict(f"The object store rejects the request ({code or status}). Contact an admin.")
