"""Upload the volume changes of ended pods to S3, in time-limited steps."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from berth.core.errors import Unavailable
from berth.core.spec.sections.code import CHUNK_BYTES
from pools.buckets.bucket import Bucket, ListedObject
from pools.buckets.writer import BucketWriter, UploadNotFound
from pools.engine.volumes import Volume
from pools.runtimes.files.base import FilesNotFound, PodFile, VolumeChanges
from pools.runtimes.shim.transfers.listing import FILES_MAX, GIB, path_problem
from projects.services.outputs import OutputsRejected

PART_BYTES = 16 * 2**20  # minimum size of the parts of large files
PARTS_MAX = 10_000  # maximum number of parts in one upload
UPLOADS_MAX = 2  # maximum attempts to store a file if the object store deletes its upload
KEY_BYTES_MAX = 1024

Read = Callable[[str, int, int], bytes]  # reads a file: path, offset and maximum number of bytes


@dataclass(slots=True)
class Upload:
    """Unfinished upload of a large file in parts. `etags` has one entry for each stored part."""

    path: str
    id: str
    etags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Progress:
    """State of a transfer: the last stored file in path order, the last deletion, and an unfinished upload.

    `size` is the number of stored bytes.
    """

    file: str = ""
    deletion: str = ""
    upload: Upload | None = None
    file_count: int = 0
    size: int = 0
    deleted_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Progress":
        upload = stored.get("upload")
        return cls(**{**stored, "upload": Upload(**upload) if upload else None})


class VolumeTransfer:
    """Transfer of one pod's changes to one volume.

    `read` reads one of the pod's files. `save` stores the progress, and may raise an error to stop.
    """

    def __init__(
        self, changes: VolumeChanges, progress: Progress, volume: Volume, bucket: Bucket,
        writer: BucketWriter, read: Read, save: Callable[[Progress], None],
    ) -> None:  # fmt: skip
        self.progress, self._volume, self._writer = progress, volume, writer
        self._read, self._save = read, save
        listed = {entry.path: entry for entry in _list_all_objects(bucket)}
        self._deleted = sorted(changes.deleted)
        self.skipped = dict(changes.skipped)
        self._files = list(self._storable_files(changes.files, listed))
        if progress == Progress():
            self._check_size(listed)

    def run(self, is_time_up: Callable[[], bool]) -> bool:
        """Continue the transfer until everything is stored or the time is up.

        Return whether everything is stored. Raises FilesNotFound, Conflict or Unavailable, and the errors of
        `read` and `save`.
        """
        progress = self.progress
        for file in self._files:
            if file.path > progress.file:
                if not self._store_file(file, is_time_up):
                    return False
                progress.file, progress.upload = file.path, None
                progress.file_count += 1
                self._save(progress)
                if is_time_up():
                    return False
        # Old files are deleted last, so that the volume always contains a complete checkpoint.
        for path, etag in self._deleted:
            if path > progress.deletion:
                progress.deleted_count += self._delete_object(path, etag)
                progress.deletion = path
                self._save(progress)
                if is_time_up():
                    return False
        return True

    def _storable_files(self, files: Iterable[PodFile], listed: dict[str, ListedObject]) -> Iterator[PodFile]:
        """Yield the files that can be stored as objects, sorted by path. Record why the others cannot."""
        remaining = set(listed) - {path for path, _ in self._deleted}
        folders = {folder for path in remaining for folder in _parent_folders(path)}
        for file in sorted(files, key=lambda each: each.path):
            reason = path_problem(file.path)
            if len((self._volume.prefix + file.path).encode()) > KEY_BYTES_MAX:
                reason = f"its key is longer than {KEY_BYTES_MAX:,} bytes"
            if file.path in folders or remaining.intersection(_parent_folders(file.path)):
                reason = "the volume has both an object and a folder with this name"
            if reason:
                self.skipped[file.path] = f"cannot be an object: {reason}"
            else:
                yield file

    def _check_size(self, listed: dict[str, ListedObject]) -> None:
        """Raise OutputsRejected if pods could not fetch the volume after the change."""
        sizes = {path: entry.size for path, entry in listed.items()}
        for path, _ in self._deleted:
            sizes.pop(path, None)
        sizes.update((file.path, file.size) for file in self._files)
        total, limit = sum(sizes.values()), self._volume.max_gib * GIB
        if self._files and total > limit:
            raise OutputsRejected(
                f"With these changes, the volume would hold {total / GIB:,.1f} GiB, which exceeds its limit "
                f"of {limit / GIB:g} GiB. Ask an admin to raise the volume's max_gib or to delete objects."
            )
        if self._files and len(sizes) > FILES_MAX:
            raise OutputsRejected(
                f"With these changes, the volume would hold {len(sizes):,} objects, but the maximum is "
                f"{FILES_MAX:,}. Ask an admin to delete objects."
            )

    def _store_file(self, file: PodFile, is_time_up: Callable[[], bool]) -> bool:
        """Store the file. Return False if the time is up before all of its parts are stored."""
        part_bytes = max(PART_BYTES, -(-file.size // PARTS_MAX))
        if file.size <= part_bytes:
            self._writer.put(file.path, self._read_content(file, 0, file.size))
            self.progress.size += file.size
            return True
        for _ in range(UPLOADS_MAX):
            try:
                return self._store_parts(file, part_bytes, is_time_up)
            except UploadNotFound:
                self._discard_parts(file, part_bytes)
        raise Unavailable(
            "The object store keeps deleting unfinished uploads. Ask an admin to check the bucket's "
            "lifecycle rule for incomplete multipart uploads."
        )

    def _store_parts(self, file: PodFile, part_bytes: int, is_time_up: Callable[[], bool]) -> bool:
        upload = self.progress.upload
        if upload is None or upload.path != file.path:
            upload = self.progress.upload = Upload(file.path, self._writer.begin_upload(file.path))
            # Save first, because the parts of an unrecorded upload would cost money.
            self._save(self.progress)
        for offset in range(len(upload.etags) * part_bytes, file.size, part_bytes):
            content = self._read_content(file, offset, min(part_bytes, file.size - offset))
            number = len(upload.etags) + 1
            upload.etags.append(self._writer.put_part(file.path, upload.id, number, content))
            self.progress.size += len(content)
            self._save(self.progress)
            if is_time_up():
                return False
        self._writer.complete(file.path, upload.id, upload.etags)
        return True

    def _discard_parts(self, file: PodFile, part_bytes: int) -> None:
        if self.progress.upload is not None:
            self.progress.size -= min(len(self.progress.upload.etags) * part_bytes, file.size)
        self.progress.upload = None

    def _read_content(self, file: PodFile, offset: int, size: int) -> bytes:
        parts, end = [], offset + size
        while offset < end:
            part = self._read(file.path, offset, min(CHUNK_BYTES, end - offset))
            if not part:
                raise FilesNotFound(f"{file.path} was truncated while it was being read")
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _delete_object(self, path: str, etag: str) -> bool:
        is_deleted = self._writer.delete(path, etag)
        if not is_deleted:
            self.skipped[path] = "was deleted by the pod, but has been replaced by others since"
        return is_deleted


def _list_all_objects(bucket: Bucket) -> Iterator[ListedObject]:
    page = bucket.list_page()
    yield from page.objects
    while page.next:
        page = bucket.list_page(page.next)
        yield from page.objects


def _parent_folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
