"""Shell scripts that Berth runs on SSH hosts, and a parser for the properties that hosts report."""

import base64
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PYTHON_MIN = (3, 9)
REQUIRED_PROGRAMS = ("base64", "curl", "tar")
# The probe prints one line per property. Detecting agents requires root or passwordless sudo.
PROBE = """LC_ALL=C
export LC_ALL
if [ "$(id -u)" = 0 ]; then as=; echo root=root
elif sudo -n true 2> /dev/null; then as='sudo -n'; echo root=sudo
else as=false; echo root=; fi
echo "python=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2> /dev/null)"
[ -d /run/systemd/system ] && echo systemd=yes
for program in @PROGRAMS@; do command -v "$program" > /dev/null || echo "missing=$program"; done
echo "cpus=$(nproc)"
echo "memory_mib=$(($(sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo) / 1024))"
echo "architecture=$(uname -m)"
echo "os=$(sed -n 's/^PRETTY_NAME="\\{0,1\\}\\([^"]*\\)"\\{0,1\\}$/\\1/p' /etc/os-release 2> /dev/null)"
directory=@HOME@
while [ ! -d "$directory" ]; do directory=$(dirname "$directory"); done
echo "disk_free_mib=$(df -Pm "$directory" | awk 'NR == 2 { print $4 }')"
timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | sed 's/^/gpu=/'
for home in @HOMES@; do
  if $as test -e "$home/environment" 2> /dev/null; then
    echo "agent=$home"
    $as sed -n 's/^BERTH_\\(URL\\|POOL\\|INSTALLATION\\)=/agent_\\1=/p' "$home/environment"
  fi
done
:
"""
INSTALL = """set -eu
umask 077
mkdir -p @HOME@
agent=@HOME@/download.$$
trap 'rm -f "$agent"' EXIT
base64 -d > "$agent" <<'BERTH_AGENT'
@AGENT@BERTH_AGENT
@EXPORTS@python3 "$agent" install --rejoin --detached < /dev/null
"""
CA = """cat > @HOME@/ca.pem <<'BERTH_CA'
@CA@
BERTH_CA
"""
# The script leaves other files and the agents of other installations and pools unchanged.
UNINSTALL = """set -eu
home=@HOME@
export BERTH_MACHINE_STATE="$home"
if [ -e "$home/environment" ]; then
  grep -qxF @MARK@ "$home/environment" || exit 0
  [ ! -e "$home/berth-agent" ] || exec python3 "$home/berth-agent" uninstall --force < /dev/null
fi
rm -f "$home"/download.* "$home/ca.pem" "$home/environment" "$home/lock" "$home/machine-id" "$home/secret"
rmdir "$home" 2> /dev/null || :
"""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Properties of an SSH host. `root` is `root` or `sudo`, or empty if Berth cannot become root."""

    root: str = ""
    python: str = ""
    has_systemd: bool = False
    missing: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    disk_free_mib: int = 0
    architecture: str = ""
    os: str = ""
    gpus: tuple[str, ...] = ()
    agent_home: str = ""
    agent_url: str = ""
    agent_pool: str = ""
    agent_installation: str = ""

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def problems(self, installation: str) -> list[str]:
        """Return the reasons why the host cannot be used, each with a remedy."""
        problems = []
        if not self.root:
            problems.append(
                "the user is not root and cannot use sudo without a password. Log in as root, or allow this"
            )
        version = tuple(int(part) for part in self.python.split(".")[:2] if part.isdecimal())
        if version < PYTHON_MIN:
            state = f"has Python {self.python}" if self.python else "has no python3"
            problems.append(f"the host {state}. Install Python 3.9 or newer")
        if self.missing:
            problems.append(f"the host lacks required programs: {', '.join(self.missing)}. Install them")
        if self.agent_home and self.agent_installation != installation:
            other = f"{self.agent_url or 'another Berth'}, pool {self.agent_pool or 'unknown'}"
            problems.append(
                f"the host already has an agent of {other}. If it is not used, run `sudo python3 "
                f"{self.agent_home}/berth-agent uninstall` on the host"
            )
        return problems


def probe_script(home: str, default_home: str) -> str:
    homes = " ".join(dict.fromkeys((shlex.quote(home), shlex.quote(default_home))))
    script = PROBE.replace("@PROGRAMS@", " ".join(REQUIRED_PROGRAMS))
    return script.replace("@HOMES@", homes).replace("@HOME@", shlex.quote(home))


def parse_facts(output: str) -> HostFacts:
    """Parse the probe script's output, ignoring unknown and malformed lines."""
    single: dict[str, str] = {}
    lists: dict[str, list[str]] = {"missing": [], "gpu": []}
    for line in output.splitlines():
        name, _, value = line.partition("=")
        text = "".join(char for char in value if char.isprintable()).strip()[:200]
        if name in lists:
            lists[name].append(text)
        else:
            single.setdefault(name, text)
    return HostFacts(
        root=single.get("root", ""), python=single.get("python", ""), has_systemd="systemd" in single,
        missing=tuple(lists["missing"]), cpus=_number(single, "cpus"),
        memory_mib=_number(single, "memory_mib"), disk_free_mib=_number(single, "disk_free_mib"),
        architecture=single.get("architecture", ""), os=single.get("os", ""),
        gpus=tuple(gpu.removeprefix("NVIDIA ") for gpu in lists["gpu"][:64]),
        agent_home=single.get("agent", ""), agent_url=_unquoted_value(single, "agent_URL"),
        agent_pool=_unquoted_value(single, "agent_POOL"),
        agent_installation=_unquoted_value(single, "agent_INSTALLATION"),
    )  # fmt: skip


def _unquoted_value(values: Mapping[str, str], name: str) -> str:
    """Return a value from the agent's environment file, which quotes values for the shell."""
    text = values.get(name, "")
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text


def _number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def install_script(home: str, agent: bytes, env: Mapping[str, str], ca: str = "") -> str:
    """Return the script that installs the agent as root. The script contains the join token."""
    encoded = base64.encodebytes(agent).decode("ascii")
    variables = dict(env)
    before = ""
    if ca:
        variables["BERTH_CA"] = f"{home}/ca.pem"
        before = CA.replace("@CA@", ca)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
    script = INSTALL.replace("@EXPORTS@", before + exports).replace("@HOME@", shlex.quote(home))
    return script.replace("@AGENT@", encoded)


def uninstall_script(home: str, installation: str) -> str:
    mark = shlex.quote(f"BERTH_INSTALLATION={shlex.quote(installation)}")
    return UNINSTALL.replace("@HOME@", shlex.quote(home)).replace("@MARK@", mark)


def root_shell_command(facts: HostFacts) -> str:
    """Return the command that runs a script from stdin as root."""
    return "sh -s" if facts.root == "root" else "sudo -n sh -s"
