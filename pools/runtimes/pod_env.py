"""Base environment of local pods."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pools.runtimes.base import PodOrder

# Only these variables are inherited by pods: the environment holds secrets such as the database password.
_PASSED_ON = (
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
    order: PodOrder, workspace: Path, work: Path, own: Mapping[str, str] = os.environ,
    environment: Path | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return the environment variables of a pod.

    `python` runs the environment's Python. Without an environment, it is the Python that runs Berth, with its
    packages.
    """
    programs = Path(sys.executable).parent if environment is None else environment / "bin"
    env = {name: own[name] for name in _PASSED_ON if name in own}
    env |= {
        "PATH": f"{programs}:{own.get('PATH', _PATH)}",
        "HOME": str(workspace),
        "TMPDIR": str(work),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if environment is not None:
        env["VIRTUAL_ENV"] = str(environment)
    env |= order.env
    env |= {
        "CUDA_VISIBLE_DEVICES": ",".join(order.devices),
        "BERTH_WORKSPACE": str(workspace),
        "BERTH_POD_DIR": str(work),
    }
    return env
