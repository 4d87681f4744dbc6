"""Copy a writable volume for one pod, and record its files to detect the pod's changes.

A file has changed if its status change time (ctime) is later than recorded, because pods cannot set that
time.
"""

from __future__ import annotations

import json
import os
import shutil
import time

from pools.runtimes.shim.transfers.cache import Cache
from pools.runtimes.shim.transfers.listing import Object

TYPE_CHECKING = False  # avoids importing `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS = 0.02  # longer than the timestamp resolution of file systems


def copy_objects(
    objects: list[Object], cache: Cache, draft: str, uid: int, report: Callable[[int], None]
) -> None:
    """Copy cached objects to files in the existing directory `draft`.

    The files belong to the user `uid`, or to this process's user if `uid` is 0. `report` is called with the
    number of copied files. Raises OSError.
    """
    for number, entry in enumerate(objects):
        report(number)
        path = f"{draft}/{entry.path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(cache.path(entry), path)
        os.utime(path, (entry.modified, entry.modified))
    if uid:
        for _, directories, names, fd in os.fwalk(draft):
            for name in (*directories, *names):
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
        os.chown(draft, uid, uid)


def write_copy_record(objects: list[Object], place: str) -> None:
    """Record which objects were copied to the directory `place`. Raises OSError."""
    with open(f"{copy_record_path(place)}.new", "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump([[entry.path, entry.etag] for entry in objects], file)
    time.sleep(TICK_SECONDS)  # wait, because all copies must be older than the record
    os.rename(file.name, copy_record_path(place))
    time.sleep(TICK_SECONDS)  # wait, because every change that the pod makes must be newer than the record


def copy_record_path(place: str) -> str:
    return f"{place}.copied"
