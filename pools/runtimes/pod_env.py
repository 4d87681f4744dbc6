"""Here we say what a local pod finds in its environment before its own order is laid over it."""
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pools.runtimes.base import PodOrder

# What of our own environment is passed on. Not more: it holds the database's password, for one.
_PASSED_ON = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "SSL_CERT_FILE", "HTTP_PROXY",
              "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def pod_env(
    order: PodOrder, workspace: Path, work: Path, own: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """`python` is the one that runs Berth, so that what is installed with it is there for pods too."""
    env = {name: own[name] for name in _PASSED_ON if name in own}
    env |= {
        "PATH": f"{Path(sys.executable).parent}:{own.get('PATH', _PATH)}",
        "HOME": str(workspace),
        "TMPDIR": str(work),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    env |= order.env
    env |= {
        "CUDA_VISIBLE_DEVICES": ",".join(order.devices),
        "BERTH_WORKSPACE": str(workspace),
        "BERTH_POD_DIR": str(work),
    }
    return env
