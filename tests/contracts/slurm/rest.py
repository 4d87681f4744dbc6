"""A real slurmrestd for a test cluster, with tokens signed by the cluster's own key."""

import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.connection import Server
from pools.providers.slurm.rest.versions import UNDERSTOOD, Api
from pools.providers.slurm.settings import SlurmSettings
from tests.contracts.slurm.cluster import ENTER, SlurmCluster, is_installed
from tests.journeys.installation import until
from tests.support.ports import free_port

# slurmrestd refuses to run as root.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def missing_rest() -> list[str]:
    return [name for name in ("slurmrestd",) if not is_installed(name)]


def installed_versions() -> tuple[str, ...]:
    """Return the supported API versions that the installed slurmrestd offers."""
    shown = subprocess.run([*ENTER, "slurmrestd", "-V"], check=True, capture_output=True, text=True).stdout
    is_new = not shown.startswith("slurm-wlm 22.05")
    return tuple(version for version in UNDERSTOOD if (version >= "v0.0.40") is is_new)


def allow_tokens(cluster: SlurmCluster) -> None:
    """Let the cluster accept tokens that its controller has signed."""
    key = cluster.root / "jwt.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with (cluster.root / "slurm.conf").open("a") as configuration:
        configuration.write(f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n")


@dataclass
class SlurmRestServer:
    """A slurmrestd server for `versions` of the API. It needs the accounting database to list ended jobs."""

    cluster: SlurmCluster
    versions: tuple[str, ...] = field(default_factory=installed_versions)
    has_accounting: bool = False
    port: int = field(default_factory=free_port)
    user: str = "root"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return f"slurmrestd-{self.port}"

    def start(self) -> None:
        if self.versions[0] >= "v0.0.40":
            parsers = ",".join(f"data_parser/{version}" for version in self.versions)
            kinds = "slurmctld,slurmdbd" if self.has_accounting else "slurmctld"
            plugins = ["-s", kinds, "-d", parsers]
        else:
            names = [f"openapi/{version}" for version in self.versions]
            names += [f"openapi/db{version}" for version in self.versions if self.has_accounting]
            plugins = ["-s", ",".join(names)]
        self.cluster.start_daemon(
            "env", "SLURM_JWT=daemon", *NOBODY, "slurmrestd", "-a", "rest_auth/jwt", *plugins,
            f"127.0.0.1:{self.port}", key=self.name,
        )  # fmt: skip
        until(self._responds, 60)

    def stop(self) -> None:
        self.cluster.stop_daemon(self.name, kills_after=10)
        del self.cluster.processes[self.name]

    def kill(self) -> None:
        self.cluster.stop_daemon(self.name, signal.SIGKILL)

    def token(self, seconds: int = 3600) -> str:
        output = self.cluster.run("scontrol", "token", f"lifespan={seconds}", f"username={self.user}")
        match = re.search(r"SLURM_JWT=(\S+)", output)
        assert match, output
        return match[1]

    def client(self, settings: SlurmSettings) -> SlurmRest:
        server, versions = Server(self.url, self.user, self.token()), dict[str, Api]()
        return SlurmRest(settings, lambda: server, versions, now=lambda: datetime.now(UTC))

    def _responds(self) -> bool:
        call = ["curl", "-s", "-o", os.devnull, f"{self.url}/openapi/v3"]
        return subprocess.run(call, check=False).returncode == 0
