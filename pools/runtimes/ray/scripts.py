"""Here we write what makes a machine a node of its pool's Ray cluster, and what ends that again."""
import io
import json
import tarfile
from functools import cache
from pathlib import Path

from pools.runtimes.ray.cluster import AGENT_PORT, GCS_PORT, JOBS_PORT, NodeAt, label_of

RAY = "2.60.0"  # the same on all nodes of a cluster, or they do not understand each other
_SOURCE = Path(__file__).resolve().parents[3]
_PARTS = (
    "pools/__init__.py", "pools/runtimes/__init__.py", "pools/runtimes/base.py", "pools/runtimes/local.py",
    "pools/runtimes/local_log.py", "pools/runtimes/pod_dir.py", "pools/runtimes/pod_env.py",
    "pools/runtimes/device_use.py", "pools/runtimes/process_use.py",
    "pools/runtimes/rendezvous.py", "pools/runtimes/shim/*.py", "pools/runtimes/ray/__init__.py",
    "pools/runtimes/ray/cluster.py", "pools/runtimes/ray/wire.py", "pools/runtimes/ray/node/*.py",
)  # fmt: skip
_PLACE = 'place="${BERTH_MACHINE_STATE:-/var/lib/berth-machine}/ray"'
STOP = f"""set -eu
{_PLACE}
if [ -f "$place/pid" ]; then
  kill "$(cat "$place/pid")" 2>/dev/null || :
  rm -f "$place/pid"
  sleep 12
fi
"""
_START = """set -eu
umask 077
{place}
mkdir -p "$place/code"
curl -fsS ${{BERTH_CA:+--cacert "$BERTH_CA"}} -o "$place/node.tar.gz" "$BERTH_URL/api/v1/machines/node.tar.gz"
tar -xzf "$place/node.tar.gz" -C "$place/code"
python="${{BERTH_NODE_PYTHON:-$place/venv/bin/python}}"
if [ ! -x "$python" ]; then
  for found in python3.13 python3.12 python3.11 python3; do
    command -v "$found" >/dev/null && "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && break
  done
  "$found" -m venv "$place/venv"
  "$place/venv/bin/pip" install -q 'ray[default]=={ray}'
fi
cat > "$place/node.json" <<'BERTH_NODE_SETTINGS'
{settings}
BERTH_NODE_SETTINGS
sed -i "s|@PLACE@|$place|; s|@WORKSPACES@|${{BERTH_NODE_WORKSPACES:-}}|" "$place/node.json"
sed -i "s|@ENVIRONMENTS@|${{BERTH_ENVIRONMENTS:-${{place%/ray}}/environments}}|" "$place/node.json"
export PYTHONPATH="$place/code"
nohup setsid sh -c 'trap "kill \\$node; wait \\$node; exit" TERM
while :; do "$0" -m pools.runtimes.ray.node.main "$1" & node=$!; wait $node || :; sleep 5; done' \\
  "$python" "$place/node.json" >> "$place/node.log" 2>&1 < /dev/null &
echo $! > "$place/pid"
"""


def start_script(node: NodeAt, head: NodeAt) -> str:
    """Run by the machine as the user its program runs as. It holds the cluster's secret."""
    settings = {
        "label": label_of(node.instance_id), "address": node.address, "head": f"{head.address}:{GCS_PORT}",
        "is_head": node.is_head, "secret": node.secret, "root": "@PLACE@/node", "devices": len(node.devices),
        "agent_port": AGENT_PORT, "jobs_port": JOBS_PORT, "workspaces": "@WORKSPACES@",
        "environments": "@ENVIRONMENTS@",
    }  # fmt: skip
    return STOP + _START.format(place=_PLACE, ray=RAY, settings=json.dumps(settings))


@cache
def node_code() -> bytes:
    """What runs on a node besides Ray, as a tar; no secret is in it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for part in _PARTS:
            for path in sorted(_SOURCE.glob(part)):
                tar.add(path, path.relative_to(_SOURCE).as_posix(), filter=_plain)
    return packed.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
