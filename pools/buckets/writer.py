"""Store and delete objects of a writable S3 volume."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from botocore.exceptions import ClientError

from pools.buckets.bucket import s3_client, translate_errors
from pools.buckets.logins import BucketLogin
from pools.engine.volumes import Volume

MISSING = ("NoSuchKey", "404")


class UploadNotFound(Exception):
    """Raised if a multipart upload no longer exists: it was completed, or the store deleted it."""


class BucketWriter:
    """Writer for the objects of an S3 volume.

    Do not use it inside a transaction. All methods raise Conflict if the bucket cannot be used with the
    volume's settings, and Unavailable if a retry may succeed.
    """

    def __init__(self, volume: Volume, login: BucketLogin) -> None:
        self._bucket, self._prefix = volume.bucket, volume.prefix
        self._s3 = s3_client(volume.endpoint, volume.region, login)

    def put(self, path: str, content: bytes) -> None:
        with translate_errors():
            self._s3.put_object(**self._object_arguments(path), Body=content)

    def begin_upload(self, path: str) -> str:
        with translate_errors():
            return str(self._s3.create_multipart_upload(**self._object_arguments(path))["UploadId"])

    def put_part(self, path: str, upload: str, number: int, content: bytes) -> str:
        """Upload one part, and return its ETag. Part numbers start at 1. Raises UploadNotFound."""
        with translate_errors(), _translate_missing_upload():
            answer = self._s3.upload_part(
                **self._object_arguments(path), UploadId=upload, PartNumber=number, Body=content
            )
        return str(answer["ETag"])

    def complete(self, path: str, upload: str, etags: Sequence[str]) -> None:
        """Create the object from an upload's parts. Raises UploadNotFound."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        with translate_errors(), _translate_missing_upload():
            self._s3.complete_multipart_upload(
                **self._object_arguments(path), UploadId=upload, MultipartUpload={"Parts": parts}
            )

    def abort(self, path: str, upload: str) -> None:
        """Delete an upload's parts. Do nothing if the upload is complete or no longer exists."""
        with translate_errors(), suppress(UploadNotFound), _translate_missing_upload():
            self._s3.abort_multipart_upload(**self._object_arguments(path), UploadId=upload)

    def delete(self, path: str, etag: str) -> bool:
        """Delete an object if it still has the given ETag. Return whether the object no longer exists."""
        with translate_errors():
            try:
                current = self._s3.head_object(**self._object_arguments(path))["ETag"]
            except ClientError as error:
                if _error_code(error) in MISSING:
                    return True
                raise
            if current != etag:
                return False
            self._s3.delete_object(**self._object_arguments(path))
        return True

    def _object_arguments(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + path}


@contextmanager
def _translate_missing_upload() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if _error_code(error) == "NoSuchUpload":
            raise UploadNotFound from error
        raise


def _error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
