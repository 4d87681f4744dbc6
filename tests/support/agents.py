"""Write and start the agent program that joined machines run."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from pools.joining.package import agent_package

NO_METADATA = {"BERTH_METADATA_URL": "http://127.0.0.1:9"}
REJECTED = 3  # exit code of an agent that the server has rejected


def write_agent(directory: Path, report_seconds: float = 5.0, version: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "berth-agent"
    with zipfile.ZipFile(io.BytesIO(agent_package())) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            interval = b"REPORT_INTERVAL_SECONDS = 5.0\n"
            text = source.read(name).replace(interval, interval.replace(b"5.0", b"%g" % report_seconds))
            if version and name == "berth_agent/version.py":
                text = f'VERSION = "{version}"\n'.encode()
            target.writestr(name, text)
    return path


def start_agent(url: str, state: Path, token: str, **more: str) -> "subprocess.Popen[bytes]":
    """Start an agent that reports every 0.2 s to the pool `metal`."""
    env = {
        **os.environ, "BERTH_URL": url, "BERTH_POOL": "metal", "BERTH_JOIN_TOKEN": token,
        "BERTH_MACHINE_STATE": str(state), **NO_METADATA, **more,
    }  # fmt: skip
    agent = write_agent(state.parent, report_seconds=0.2)
    return subprocess.Popen([sys.executable, "-S", str(agent)], env=env, cwd=state.parent)
