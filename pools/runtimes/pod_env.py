"""Environment variables of local pods, and the downloads before a pod starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pools.runtimes.base import PodSpec
from pools.runtimes.shim.records import Record

# Pods inherit only these environment variables, because others may contain Berth's secrets.
_INHERITED_VARIABLES = (
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "SSL_CERT_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def pod_env(
    spec: PodSpec, workspace: Path, work: Path, inherited: Mapping[str, str] = os.environ,
    environment: Path | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return a pod's environment variables.

    In the pod, `python` is the environment's Python, or, without an environment, the Python that runs Berth,
    with Berth's packages.
    """
    programs = Path(sys.executable).parent if environment is None else environment / "bin"
    env = {name: inherited[name] for name in _INHERITED_VARIABLES if name in inherited}
    env |= {
        "PATH": f"{programs}:{inherited.get('PATH', _PATH)}",
        "HOME": str(workspace),
        "TMPDIR": str(work),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if environment is not None:
        env["VIRTUAL_ENV"] = str(environment)
    env |= spec.env
    env |= {
        "CUDA_VISIBLE_DEVICES": ",".join(spec.devices),
        "BERTH_WORKSPACE": str(workspace),
        "BERTH_POD_DIR": str(work),
    }
    return env


def download_fields(spec: PodSpec, volume_cache: Path) -> Record:
    """Return the pod spec fields for the downloads that the shim makes before the command starts."""
    fields: Record = [("code_url", spec.code_url)] if spec.code_url else []
    if spec.volumes_url:
        fields += [("volumes_url", spec.volumes_url), ("volume_cache", str(volume_cache))]
        fields += [("synced_volume", f"{each.name} {each.cache}") for each in spec.volumes if each.cache]
        fields += [("writable_volume", each.name) for each in spec.volumes if each.cache and each.is_writable]
    return [*fields, ("download_ca", spec.download_ca)] if fields else []
