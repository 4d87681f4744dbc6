"""The machine's agent as one file, which any Python 3.9 or newer runs."""

import io
import zipfile
from functools import cache
from importlib.resources import files

_MAIN = "import sys\n\nfrom berth_agent.main import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def agent_package() -> bytes:
    """Return the agent as a reproducible, uncompressed zip file. It contains no secret."""
    folder = files("pools.joining").joinpath("agent")
    sources = {
        f"berth_agent/{path.name}": path.read_text("utf-8")
        for path in folder.iterdir()
        if path.name[-3:] == ".py"
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in [("__main__.py", _MAIN), *sorted(sources.items())]:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
    return buffer.getvalue()
