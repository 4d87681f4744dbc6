"""Container that keeps a pod's files readable after the command has ended, and the scripts that run in it.

The container is needed because a pod's volume can be read only while one of its containers runs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pools.runtimes.base import PodSpec
from pools.runtimes.shim.code import DIRECTORY as CODE_DIRECTORY

CONTAINER = "files"
ANNOTATION = "berth.dev/files"
# Seconds for copying a stopped pod's files after its command's grace period.
COPY_SECONDS = 120
ROOT, POD, WORKSPACE = "/berth", "pod", "workspace"
MARK = f"{ROOT}/{POD}/.berth-files-copied"
MISSING, EMPTY = 90, 91  # exit codes of the script that packs files
# The container's timeout in half-seconds. It applies if the command has ended and Berth is down.
GIVE_UP = 7200

# Signals only the command's processes, which are in a different control group from this script.
# Process 1 is skipped, because it holds the pod's namespaces.
_OTHERS = """
others() {
  none=1
  for entry in /proc/[0-9]*; do
    [ "$entry" = /proc/1 ] && continue
    group=$(cat "$entry/cgroup" 2> /dev/null)
    { [ -z "$group" ] || [ "$group" = "$own" ]; } && continue
    none=0
    kill -"$1" "${entry#/proc/}" 2> /dev/null
  done
  return $none
}
own=$(cat /proc/self/cgroup)
"""
# The cluster sends SIGTERM to both containers at once.
# The cluster kills both containers after the grace period plus COPY_SECONDS.
_KEEP = f"""
{_OTHERS}
grace=$1 stopping= idle=0
stop() {{
  [ -n "$stopping" ] && return
  stopping=1
  {{ sleep "$grace"; while others KILL; do sleep 1; done; }} &
}}
trap stop TERM
trap : HUP INT
while [ ! -e {MARK} ] && [ $idle -lt {GIVE_UP} ]; do
  sleep 0.5 2> /dev/null || sleep 1 || exit 1
  set -- /proc/[0-9]*
  if [ $# -le 2 ]; then idle=$((idle + 1)); else idle=0; fi
done
"""
_WAIT = f"""
{_OTHERS}
while others 0; do sleep 0.2 2> /dev/null || sleep 1 || exit 1; done
"""
# Paths that contain links are left out, because a link could point to files in the image.
_PACK = f"""
is_inside() {{
  above= rest=$1
  while [ "$rest" != "${{rest#*/}}" ]; do
    above=$above${{rest%%/*}} rest=${{rest#*/}}
    [ -L "$above" ] && return 1
    above=$above/
  done
}}
cd {ROOT} || exit 1
command -v tar > /dev/null || {{ echo "its image has no tar" >&2; exit {MISSING}; }}
for path; do
  shift
  {{ [ -e "$path" ] || [ -L "$path" ]; }} && is_inside "$path" && set -- "$@" "./$path"
done
[ $# -gt 0 ] || exit {EMPTY}
exec tar -c -f - "$@"
"""
WAIT = ["sh", "-c", _WAIT]
FINISH = ["sh", "-c", f": > {MARK}"]


@dataclass(frozen=True, slots=True)
class FilesToCopy:
    """Files to copy from a finished pod: its outputs below `base`.

    If the pod failed and `keeps` is set, all other files are copied too.
    """

    base: str
    outputs: tuple[str, ...]
    keeps: bool

    @property
    def output_paths(self) -> list[str]:
        return [f"{self.base}/{path}" for path in self.outputs]


def files_to_copy(spec: PodSpec) -> FilesToCopy | None:
    """Return the files that Berth copies from the pod, or None if it copies none."""
    if not spec.outputs and not spec.keeps_files:
        return None
    base = f"{POD}/{CODE_DIRECTORY}" if spec.code_url else POD
    return FilesToCopy(base, spec.outputs, spec.keeps_files)


def encode_files_to_copy(wanted: FilesToCopy) -> str:
    return json.dumps({"base": wanted.base, "outputs": wanted.outputs, "keeps": wanted.keeps})


def decode_files_to_copy(pod: Mapping[str, Any]) -> FilesToCopy:
    """Read from the pod's annotation which files to copy.

    The result lists no files if another user of the cluster has made the annotation invalid.
    """
    text = (pod["metadata"].get("annotations") or {}).get(ANNOTATION) or ""
    try:
        fields = json.loads(text)
        return FilesToCopy(str(fields["base"]), tuple(map(str, fields["outputs"])), bool(fields["keeps"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return FilesToCopy(POD, (), keeps=False)


def files_container(
    container: Mapping[str, Any], env: Mapping[str, str], grace_seconds: int
) -> dict[str, Any]:
    """Return the container that keeps a pod's files readable.

    `container` is the pod's main container. The returned container has the same image, but no GPUs, secrets,
    declared volumes or resource requests.
    """
    nothing = {"cpu": "0", "memory": "0"}
    policy = container["imagePullPolicy"]
    return {
        "name": CONTAINER,
        "image": container["image"],
        "imagePullPolicy": "IfNotPresent" if policy == "Always" else policy,
        "command": ["sh", "-c", _KEEP.replace("$", "$$"), "sh", str(grace_seconds)],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "workingDir": "/",
        "resources": {"requests": nothing, "limits": nothing},
        "volumeMounts": [
            mount for mount in container["volumeMounts"]
            if mount["name"] in (POD, WORKSPACE) and "subPath" not in mount
        ],
        "securityContext": container["securityContext"],
    }  # fmt: skip


def pack_command(paths: Sequence[str]) -> list[str]:
    """Return the command that writes an archive of the paths below ROOT to stdout, skipping missing paths."""
    return ["sh", "-c", _PACK, "sh", *paths]
