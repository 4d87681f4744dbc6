"""Install packages into this virtual environment with uv, from the indexes that pip is configured to use.

uv takes a tenth of pip's time. If uv fails, pip is used. The arguments are those of `pip install`.
"""

import ast
import os
import subprocess
import sys

# Settings of pip, with the corresponding environment variable of uv and its separator for multiple values.
# https://docs.astral.sh/uv/reference/environment/
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
PIP = (sys.executable, "-m", "pip", "--require-virtualenv", "--disable-pip-version-check", "--no-input")


def main() -> int:
    arguments = sys.argv[1:]
    uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable]
    pip = [*PIP, "install", "-qq", "--root-user-action=ignore"]
    if subprocess.call([*uv, *arguments], env=uv_environment(), stderr=subprocess.DEVNULL) == 0:
        return 0
    return subprocess.call([*pip, *arguments])


def uv_environment() -> dict[str, str]:
    """Return this process's environment with pip's settings added as uv variables.

    Existing uv variables take precedence.
    """
    # Like pip, take the pinned version from whichever index has it. Its hash is checked.
    defaults = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for name, value in pip_settings().items():
        variable, separator = SETTINGS[name]
        defaults[variable] = separator.join(value.split())
    return {**defaults, **os.environ}


def pip_settings() -> dict[str, str]:
    """Return pip's settings that uv also supports. Variables take precedence over pip.conf."""
    listing = subprocess.check_output([*PIP, "config", "list"], text=True)
    settings: dict[str, str] = {}
    # Each line has the form global.index-url='https://...'. Later sections override earlier ones.
    for section in ("global.", "install.", ":env:."):
        for line in listing.splitlines():
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section) and name in SETTINGS:
                settings[name] = str(ast.literal_eval(value))
    return settings


if __name__ == "__main__":
    sys.exit(main())
