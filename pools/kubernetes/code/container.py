"""Init container that waits for the pod's code, and the script that unpacks the code."""

import tarfile
from collections.abc import Mapping
from typing import Any

from pools.runtimes.shim.code import DIRECTORY

CONTAINER = "code"
INCOMPLETE, MISSING = 75, 90  # exit codes of the unpacking script
BLOCK = 1024 * 1024
MARK = ".berth-code-complete-"  # name prefix of the archive's last file

# If the image has no `sleep`, the container fails.
_WAIT = f"""
until [ -d "$BERTH_POD_DIR/{DIRECTORY}" ]; do sleep 0.2 2> /dev/null || sleep 1 || exit 1; done
"""
# The rename makes all of the code visible at once.
# The input stays open after the archive, so `dd` counts the blocks and the script acknowledges each one.
# `tar` accepts an archive that was cut off between two files, so the script checks for the last file.
_UNPACK = f"""
umask 077
mark=$1 count=$2 rest=$3
cd "$BERTH_POD_DIR" || exit 1
[ -d {DIRECTORY} ] && exit 0
for program in dd mkdir mv rm tar; do
  command -v "$program" > /dev/null || {{ echo "its image has no $program" >&2; exit {MISSING}; }}
done
rm -rf .new-code-*
new=.new-code-$mark
mkdir "$new" || exit 1
exec 3>&1
{{
  while [ "$count" -gt 0 ]; do
    dd bs={BLOCK} count=1 iflag=fullblock 2> /dev/null
    echo >&3
    count=$((count - 1))
  done
  dd bs=512 count="$rest" iflag=fullblock 2> /dev/null
}} | tar -x -o -f - -C "$new" >&2 || exit 1
[ -f "$new/{MARK}$mark" ] || exit {INCOMPLETE}
rm "$new/{MARK}$mark" || exit 1
[ -d {DIRECTORY} ] || mv "$new" {DIRECTORY}
"""


def code_container(container: Mapping[str, Any], env: Mapping[str, str], gpu_resource: str) -> dict[str, Any]:
    """Return the init container that receives a pod's code.

    `container` is the pod's main container. The init container has the same image and resources, but no GPUs,
    no secrets, and only the volume of the pod's directory.
    """
    resources = {
        kind: {name: amount for name, amount in amounts.items() if name != gpu_resource}
        for kind, amounts in container["resources"].items()
    }
    return {
        "name": CONTAINER,
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "command": ["sh", "-c", _WAIT.replace("$", "$$")],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "workingDir": "/",
        "resources": resources,
        "volumeMounts": [mount for mount in container["volumeMounts"] if mount["name"] == "pod"],
        "securityContext": container["securityContext"],
    }


def unpack_command(mark: str, size: int) -> list[str]:
    """Return the command that unpacks an archive of `size` bytes from stdin.

    It prints one byte for each BLOCK that it has read.
    """
    count, rest = divmod(size, BLOCK)
    return ["sh", "-c", _UNPACK, "sh", mark, str(count), str(rest // tarfile.BLOCKSIZE)]


def end_marker(mark: str) -> bytes:
    """Return the archive entry of an empty file that is sent last. Its arrival shows that the archive is
    complete.
    """
    return tarfile.TarInfo(f"{MARK}{mark}").tobuf(tarfile.GNU_FORMAT)
