"""Shell scripts that start and stop Ray on a machine, so that it joins or leaves its pool's cluster."""

import gzip
import hashlib
import io
import json
import tarfile
from functools import cache
from pathlib import Path

from pools.runtimes.ray.cluster import AGENT_PORT, GCS_PORT, JOBS_PORT, RayNode, node_label

RAY_VERSION = "2.60.0"  # all nodes of a cluster need the same versions of Ray and Python
PYTHON_VERSION = "3.11"
_SOURCE = Path(__file__).resolve().parents[3]
_PARTS = (
    "pools/__init__.py", "pools/runtimes/__init__.py", "pools/runtimes/base.py", "pools/runtimes/local.py",
    "pools/runtimes/local_log.py", "pools/runtimes/log_times.py", "pools/runtimes/pod_dir.py",
    "pools/runtimes/pod_env.py",
    "pools/runtimes/files/*.py",
    "pools/runtimes/device_usage.py", "pools/runtimes/process_usage.py", "pools/runtimes/cgroup_usage.py",
    "pools/runtimes/rendezvous.py", "pools/runtimes/shims.py", "pools/runtimes/shim/**/*.py",
    "pools/runtimes/enclosure/*.py", "pools/runtimes/images/*.py",
    "pools/runtimes/ray/__init__.py",
    "pools/runtimes/ray/cluster.py", "pools/runtimes/wire.py", "pools/runtimes/ray/node/*.py",
)  # fmt: skip
_PLACE = 'place="${BERTH_MACHINE_STATE:-/var/lib/berth-machine}/ray"'
# Print the PIDs of the restart loop and the node. Killing only the loop would leave the node running.
_NODE_PIDS = """node_pids() {
  for file in "$place/pid" "$place/node/main.pid"; do
    pid=$(cat "$file" 2> /dev/null) || continue
    if tr '\\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -qF "$place/node.json"; then echo "$pid"; fi
  done
}
"""
# A killed node may leave Ray processes running.
# Ray processes have the path of the node's secret in their environment.
# A node in a container may use the same path, so the script also compares the directories.
_STOP_SECONDS = 22  # shorter than the agent's time limit; stopping pods and Ray may take 21 s
STOP = f"""set -eu
{_PLACE}
{_NODE_PIDS}ray_pids() {{
  for file in $(grep -lszxF "RAY_AUTH_TOKEN_PATH=$place/node/secret" /proc/[0-9]*/environ); do
    if [ "${{file%/environ}}/root$place/node" -ef "$place/node" ]; then basename "${{file%/environ}}"; fi
  done
}}
alive() {{
  for pid in $pids $(ray_pids); do
    if [ -n "$(tr -d '\\0' 2> /dev/null < "/proc/$pid/cmdline")" ]; then echo "$pid"; fi
  done
}}
pids=$(node_pids)
rm -f "$place/pid"
[ -z "$pids" ] || kill $pids 2> /dev/null || :
deadline=$(($(date +%s) + {_STOP_SECONDS}))
while [ -n "$(alive)" ] && [ "$(date +%s)" -lt "$deadline" ]; do sleep 1; done
left=$(alive)
[ -z "$left" ] || kill -KILL $left 2> /dev/null || :
"""
# Each version's code has its own directory, because running shims still read their version's code.
_DOWNLOAD_CODE = """curl -fsS --max-time 60 ${BERTH_CA:+--cacert "$BERTH_CA"} -o "$place/node.tar.gz" \\
  "$BERTH_URL/api/v1/machines/node.tar.gz"
"""
# The start script contains no checksum, because running nodes are updated whenever that script changes.
_VERIFY_CODE = """if ! echo "{sha256}  $place/node.tar.gz" | sha256sum --check --status; then
  echo "The downloaded node code has the wrong checksum." >&2
  exit 1
fi
"""
_UNPACK_CODE = """code="code-$(sha256sum "$place/node.tar.gz" | cut -c 1-16)"
if [ ! -d "$place/$code" ]; then
  rm -rf "$place/code.new"
  mkdir "$place/code.new"
  tar -xzf "$place/node.tar.gz" -C "$place/code.new"
  mv "$place/code.new" "$place/$code"
fi
"""
_USE_CODE = """ln -sfn "$code" "$place/code.link"
mv -T "$place/code.link" "$place/code"
"""
_UPGRADE = f"""set -eu
umask 077
{_PLACE}
[ -f "$place/pid" ] || exit 0
python="${{BERTH_NODE_PYTHON:-$place/venv/bin/python}}"
{_DOWNLOAD_CODE}@VERIFY@{_UNPACK_CODE}
PYTHONPATH="$place/$code" "$python" -c 'import pools.runtimes.ray.node.main'
{_USE_CODE}kill -HUP "$(cat "$place/node/main.pid")"
wait_seconds=40
sleep 1
until PYTHONPATH="$place/code" "$python" -m pools.runtimes.ray.node.check "$place/node.json"; do
  wait_seconds=$((wait_seconds - 2))
  [ "$wait_seconds" -gt 0 ] || exit 1
  sleep 2
done
"""
CHECK = f"""{_PLACE}
{_NODE_PIDS}[ -n "$(node_pids)" ]
"""
_WRITE_SETTINGS = """cat > "$place/node.json.new" <<'BERTH_NODE_SETTINGS'
{settings}
BERTH_NODE_SETTINGS
sed -i "s|@PLACE@|$place|; s|@WORKSPACES@|${{BERTH_NODE_WORKSPACES:-}}|" "$place/node.json.new"
sed -i "s|@ENVIRONMENTS@|${{BERTH_ENVIRONMENTS:-${{place%/ray}}/environments}}|" "$place/node.json.new"
mv "$place/node.json.new" "$place/node.json"
"""
# The update fails if the node must be restarted, for example because the Ray version has changed.
_UPDATE = """set -eu
umask 077
{place}
[ -n "${{BERTH_NODE_PYTHON:-}}" ] || [ "$(cat "$place/venv/.ready")" = "{ray} on {python}" ]
kill -0 "$(cat "$place/pid")"
{write_settings}kill -HUP "$(cat "$place/node/main.pid")"
"""
# If BERTH_ANCHOR is set, the node ends with the process that has this ID and start time.
_IS_ANCHORED = """is_anchored() {
  [ -n "${BERTH_ANCHOR:-}" ] || return 0
  began=$(sed "s/.*) //" "/proc/${BERTH_ANCHOR%%:*}/stat" 2> /dev/null | cut -d " " -f 20)
  [ "$began" = "${BERTH_ANCHOR#*:}" ]
}
"""
_START = """set -eu
umask 077
{place}
ray={ray} version={python}
wait_seconds=${{BERTH_NODE_START_SECONDS:-300}}

# Print the path of a Python that has the cluster's version and can create virtual environments.
# All nodes of a Ray cluster need the same version.
# If the machine has no such Python, uv downloads one from GitHub or UV_PYTHON_INSTALL_MIRROR.
find_python() {{
  if "python$version" -c 'import ensurepip, venv' 2> /dev/null; then
    command -v "python$version"
    return
  fi
  export UV_PYTHON_INSTALL_DIR="${{UV_PYTHON_INSTALL_DIR:-$place/python}}" UV_CACHE_DIR="$place/uv/cache"
  uv=$(command -v uv || echo "$place/uv/bin/uv")
  {{ [ -x "$uv" ] || install_uv; }} && "$uv" python install --no-progress --no-bin "$version" >&2 &&
    "$uv" python find --managed-python "$version"
}}

install_uv() {{
  if python3 -m pip --version > /dev/null 2>&1; then
    python3 -m pip install -q --disable-pip-version-check --target "$place/uv" uv >&2
  else
    python3 -m venv "$place/uv" >&2 && "$place/uv/bin/pip" install -q --disable-pip-version-check uv >&2
  fi
}}

install_ray() {{
  if ! base=$(find_python) || [ -z "$base" ]; then
    echo "Python $version is not on this machine ($(python3 --version 2>&1)) and could not be downloaded." \\
      "Install python$version with venv, set UV_PYTHON_INSTALL_MIRROR to a mirror of its downloads," \\
      "or set BERTH_NODE_PYTHON to a Python that has Ray $ray." >&2
    exit 1
  fi
  rm -rf "$place/venv"
  "$base" -m venv "$place/venv"
  "$place/venv/bin/pip" install -q --disable-pip-version-check "ray[default]==$ray"
  echo "$ray on $version" > "$place/venv/.ready"
}}

mkdir -p "$place"
rm -rf "$place"/code*
{fetch_code}{use_code}python="${{BERTH_NODE_PYTHON:-$place/venv/bin/python}}"
if [ -z "${{BERTH_NODE_PYTHON:-}}" ]; then
  [ "$(cat "$place/venv/.ready" 2> /dev/null)" = "$ray on $version" ] || install_ray
fi
{write_settings}export PYTHONPATH="$place/code"
: > "$place/node.log"
nohup setsid sh -c 'trap "kill \\$node; wait \\$node; exit" TERM
{is_anchored}while is_anchored; do
"$0" -m pools.runtimes.ray.node.main "$1" & node=$!; wait $node || :; sleep 5; done' \\
  "$python" "$place/node.json" >> "$place/node.log" 2>&1 < /dev/null &
echo $! > "$place/pid"

# The head may still be installing Ray.
{is_anchored}until "$python" -m pools.runtimes.ray.node.check "$place/node.json"; do
  wait_seconds=$((wait_seconds - 3))
  if [ "$wait_seconds" -le 0 ]; then
    tail -n 20 "$place/node/ray.log" "$place/node.log" >&2
    exit 1
  fi
  is_anchored || exit 1
  sleep 3
done
echo "Ray and the agent of this node are up."
"""


def start_script(node: RayNode, head: RayNode) -> str:
    """Return the script that adds a machine to the Ray cluster. The script contains the cluster's secret."""
    return STOP + _START.format(
        place=_PLACE, fetch_code=_DOWNLOAD_CODE + _UNPACK_CODE, use_code=_USE_CODE,
        ray=RAY_VERSION, python=PYTHON_VERSION, write_settings=_settings_script(node, head),
        is_anchored=_IS_ANCHORED,
    )  # fmt: skip


def update_script(node: RayNode, head: RayNode) -> str:
    """Return the script that connects a running node to a new head node without stopping its pods."""
    return _UPDATE.format(
        place=_PLACE, ray=RAY_VERSION, python=PYTHON_VERSION, write_settings=_settings_script(node, head)
    )


def upgrade_script() -> str:
    """Return the script that upgrades Berth's code on a running node without stopping its pods."""
    verify = _VERIFY_CODE.format(sha256=hashlib.sha256(node_code()).hexdigest())
    return _UPGRADE.replace("@VERIFY@", verify)


def _settings_script(node: RayNode, head: RayNode) -> str:
    settings = {
        "label": node_label(node.instance_id), "address": node.address, "head": f"{head.address}:{GCS_PORT}",
        "is_head": node.is_head, "secret": node.secret, "root": "@PLACE@/node", "devices": len(node.devices),
        "agent_port": AGENT_PORT, "jobs_port": JOBS_PORT, "workspaces": "@WORKSPACES@",
        "environments": "@ENVIRONMENTS@",
    }  # fmt: skip
    return _WRITE_SETTINGS.format(settings=json.dumps(settings))


@cache
def node_code() -> bytes:
    """Return Berth's code for nodes as a tar.gz archive that is reproducible and contains no secrets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in node_files():
            tar.add(path, path.relative_to(_SOURCE).as_posix(), filter=_strip_details)
    return gzip.compress(buffer.getvalue(), mtime=0)


def node_files() -> list[Path]:
    """Return the paths of the source files that nodes need."""
    return [path for part in _PARTS for path in sorted(_SOURCE.glob(part))]


def node_sources() -> dict[str, str]:
    """Return the content of each source file that nodes need, keyed by the file's path in the archive."""
    return {path.relative_to(_SOURCE).as_posix(): path.read_text("utf-8") for path in node_files()}


def _strip_details(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Clear an archive member's owner and modification time, which would differ between servers."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
