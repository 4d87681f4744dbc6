"""Look up an image tag's digest with the OCI distribution API of its registry."""

import asyncio
import base64
import hashlib
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

import httpx

from berth.core.values.images import DIGEST, ImageReference
from scheduler.registries.base import RegistryError, RegistryErrorKind
from scheduler.registries.http_client import RegistryAccess, RegistryHttpClient, Response, is_loopback
from scheduler.registries.logins import DOCKER_HUB, find_login

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
)  # fmt: skip
DOCKER_HUB_HOST = "registry-1.docker.io"
MAX_MANIFEST, MAX_TOKEN = 4 * 1024 * 1024, 1024 * 1024
CHALLENGE = re.compile(r'(\w+)="([^"]*)"', re.ASCII)
DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
Login = tuple[str, str]


@dataclass(slots=True)
class RegistryClient:
    """Client for all registries. Each client belongs to one event loop."""

    access: RegistryAccess
    _tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    async def fetch_digest(self, image: ImageReference, auth: str) -> str:
        """Return the image tag's digest. Raises RegistryError."""
        try:
            async with asyncio.timeout(self.access.seconds):
                http = RegistryHttpClient(self.access, self._tls)
                return await _DigestLookup(http, image, find_login(auth, image)).run()
        except TimeoutError:
            text = f"Registry {image.registry} did not respond within {self.access.seconds:g} s."
            raise RegistryError(RegistryErrorKind.TIMEOUT, text) from None
        except OSError as error:
            text = f"Registry {image.registry} cannot be reached: {error.strerror or error}."
            raise RegistryError(RegistryErrorKind.UNREACHABLE, text) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = f"Registry {image.registry} cannot be reached: {str(error) or type(error).__name__}."
            if "WRONG_VERSION_NUMBER" in text:
                text += " It does not use TLS. An admin can list it in BERTH_INSECURE_REGISTRIES."
            raise RegistryError(RegistryErrorKind.UNREACHABLE, text) from None


@dataclass(slots=True)
class _DigestLookup:
    """Lookup of one digest: a manifest request, repeated with a login if the registry requires one."""

    http: RegistryHttpClient
    image: ImageReference
    login: Login | None

    async def run(self) -> str:
        headers = {"Accept": ", ".join(MANIFEST_TYPES)}
        response = await self._request_manifest("HEAD", headers)
        if response.status == HTTPStatus.UNAUTHORIZED:
            headers["Authorization"] = await self._authorize(response.headers)
            response = await self._request_manifest("HEAD", headers)
        self._raise_for_status(response.status)
        digest = response.headers.get("docker-content-digest", "")
        if DIGEST.fullmatch(digest):
            return digest
        response = await self._request_manifest("GET", headers)
        self._raise_for_status(response.status)
        return f"sha256:{hashlib.sha256(response.body).hexdigest()}"

    async def _request_manifest(self, method: str, headers: Mapping[str, str]) -> Response:
        registry = self.image.registry
        scheme = "http" if self._is_insecure else "https"
        host = DOCKER_HUB_HOST if registry == DOCKER_HUB else registry
        url = f"{scheme}://{host}/v2/{self.image.repository}/manifests/{self.image.tag}"
        return await self.http.send(method, url, headers, MAX_MANIFEST)

    @property
    def _is_insecure(self) -> bool:
        registry = self.image.registry
        return registry in self.http.access.insecure or is_loopback(urlsplit(f"//{registry}").hostname or "")

    async def _authorize(self, headers: Mapping[str, str]) -> str:
        """Return the value of the Authorization header that answers the registry's challenge."""
        challenge = headers.get("www-authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic" and self.login:
            return _basic_auth(self.login)
        if scheme == "bearer":
            return f"Bearer {await self._fetch_token(dict(CHALLENGE.findall(challenge)))}"
        raise self._unauthorized_error()

    async def _fetch_token(self, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        if urlsplit(realm).scheme not in (("https", "http") if self._is_insecure else ("https",)):
            raise self._lookup_error("did not return an HTTPS token URL")
        scope = challenge.get("scope") or f"repository:{self.image.repository}:pull"
        query = {"service": challenge.get("service", ""), "scope": scope}
        url = realm + ("&" if urlsplit(realm).query else "?") + urlencode(query)
        headers = {"Authorization": _basic_auth(self.login)} if self.login else {}
        response = await self.http.send("GET", url, headers, MAX_TOKEN)
        if response.status in DENIED:
            raise self._unauthorized_error()
        if response.status != HTTPStatus.OK:
            raise self._lookup_error(f"responded to a token request with status {response.status}")
        try:
            content = json.loads(response.body)
            return str(content.get("token") or content["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise self._lookup_error("responded to a token request, but returned no token") from None

    def _raise_for_status(self, status: int) -> None:
        if status in DENIED:
            raise self._unauthorized_error()
        if status == HTTPStatus.NOT_FOUND:
            text = f"Registry {self.image.registry} has no image {self.image.repository}:{self.image.tag}."
            raise RegistryError(RegistryErrorKind.NOT_FOUND, text)
        if status != HTTPStatus.OK:
            raise self._lookup_error(f"responded with status {status}")

    def _unauthorized_error(self) -> RegistryError:
        text = f"Registry {self.image.registry} does not allow pulls of {self.image.repository}"
        if self.login:
            text += f" to user {self.login[0]}. Check the registry secret of the project or the pool."
        else:
            text += " without credentials. Set a registry secret in the project or the pool."
        return RegistryError(RegistryErrorKind.UNAUTHORIZED, text)

    def _lookup_error(self, what: str) -> RegistryError:
        return RegistryError(RegistryErrorKind.FAILED, f"Registry {self.image.registry} {what}.")


def _basic_auth(login: Login) -> str:
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"
