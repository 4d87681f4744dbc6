"""Package the agent as a single file for Python 3.9 or newer."""

import hashlib
import io
import zipfile
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from pools.runtimes.ray.scripts import node_sources

_MAIN = "import sys\n\nfrom berth_agent.main import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_VERSION_FILE = "berth_agent/version.py"


@cache
def agent_version() -> str:
    """Return the packaged agent's version: Berth's version and a digest of the agent's code."""
    sources = {**_agent_sources(), **node_sources()}
    content = "\0".join(f"{name}\0{sources[name]}" for name in sorted(sources))
    digest = hashlib.sha256(content.encode())
    return f"{version('berth-platform')}+{digest.hexdigest()[:8]}"


@cache
def agent_package() -> bytes:
    """Return the agent as an uncompressed zip file that is reproducible and contains no secret."""
    sources = {**_agent_sources(), _VERSION_FILE: f'VERSION = "{agent_version()}"\n'}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in [("__main__.py", _MAIN), *sorted(sources.items())]:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
    return buffer.getvalue()


def _agent_sources() -> dict[str, str]:
    folder = files("pools.joining").joinpath("agent")
    modules = [path for path in folder.iterdir() if path.name.endswith(".py")]
    return {f"berth_agent/{path.name}": path.read_text("utf-8") for path in modules}
