"""Store chunks of code in an S3 bucket."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from projects.code.base import MissingChunk, StoreFailure

THREADS = 8
DELETE_MAX = 1000  # maximum number of keys per delete request
MISSING = ("NoSuchKey", "404")


class S3Store:
    """Chunk store in an S3 bucket, with one object per chunk under a prefix.

    S3 writes each object atomically.
    """

    def __init__(self, bucket: str, prefix: str, *, endpoint: str = "") -> None:
        self._bucket, self._prefix = bucket, f"{prefix.strip('/')}/".lstrip("/")
        config = Config(
            connect_timeout=10, read_timeout=30, max_pool_connections=THREADS,
            retries={"mode": "standard", "total_max_attempts": 4},
        )  # fmt: skip
        self._s3: Any = boto3.client("s3", endpoint_url=endpoint or None, config=config)

    def write(self, chunks: Mapping[str, bytes]) -> None:
        def put(item: tuple[str, bytes]) -> None:
            self._s3.put_object(Bucket=self._bucket, Key=self._prefix + item[0], Body=item[1])

        with self._translate_errors("written"), ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(put, chunks.items()))

    def read(self, key: str) -> bytes:
        with self._translate_errors("read"):
            try:
                answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
                content: bytes = answer["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in MISSING:
                    raise MissingChunk(f"The code store has no chunk {key}.") from error
                raise
            return content

    def delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        with self._translate_errors("deleted"):
            while batch := [{"Key": self._prefix + key} for key in islice(remaining, DELETE_MAX)]:
                answer = self._s3.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
                )
                if errors := answer.get("Errors"):
                    raise StoreFailure(f"Code cannot be deleted from S3: {errors[0]['Message']}.")

    def keys(self, *, before: datetime) -> Iterator[str]:
        with self._translate_errors("listed"):
            pages = self._s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for entry in page.get("Contents", ()):
                    if entry["LastModified"] < before:
                        yield entry["Key"].removeprefix(self._prefix)

    def delete_partial_writes(self, *, before: datetime) -> None:
        """Do nothing, because S3 never stores partial objects."""

    @contextmanager
    def _translate_errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            message = f"Code cannot be {done} in the bucket {self._bucket}: {error}."
            raise StoreFailure(f"{message} Contact an admin, then try again.") from error
