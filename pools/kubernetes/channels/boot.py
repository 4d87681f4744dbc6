# This code runs with `python3 -c` in the pod, even if that Python is too old for all other code.
"""Load the source code of one of Berth's programs from stdin, and run it in the pod."""

import os
import sys


def read_exactly(count):  # type: ignore[no-untyped-def]
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit("the connection was lost")
        data += part
    return data


package = read_exactly(int(sys.argv[1]))
if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit("its image has Python %d.%d" % sys.version_info[:2])  # noqa: UP031

import importlib.machinery  # noqa: E402
import json  # noqa: E402
import zlib  # noqa: E402

sources = json.loads(zlib.decompress(package))


class MemoryFinder:
    """Import finder for Berth's modules, whose source code is in memory."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in sources:
            return None
        is_package = any(each.startswith(name + ".") for each in sources)
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        return None

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        exec(compile(sources[module.__name__], module.__name__, "exec"), module.__dict__)  # noqa: S102


sys.meta_path.insert(0, MemoryFinder())
from pools.runtimes.shim.channels.standalone import serve  # noqa: E402

serve()
