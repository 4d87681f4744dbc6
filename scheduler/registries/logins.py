"""Find the login for an image in the contents of an auth.json."""

import base64
import binascii
import json

from berth.core.values.images import ImageReference

DOCKER_HUB = "docker.io"
# Keys under which `docker login` stores the login for Docker Hub.
DOCKER_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io")


def find_login(auth: str, image: ImageReference) -> tuple[str, str] | None:
    """Return the username and password of the most specific entry for the image, or None."""
    auths = json.loads(auth).get("auths", {}) if auth else {}
    parts = image.name.split("/")
    keys = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    if image.registry == DOCKER_HUB:
        keys += DOCKER_HUB_KEYS
    return next((login for key in keys if key in auths and (login := _decode_credentials(auths[key]))), None)


def _decode_credentials(entry: object) -> tuple[str, str] | None:
    encoded = entry.get("auth") if isinstance(entry, dict) else None
    try:
        username, colon, password = base64.b64decode(str(encoded or "")).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (username, password) if colon else None
