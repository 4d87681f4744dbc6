"""Look up the digest of a tag over a registry's HTTP interface (OCI distribution specification).

Users choose registries, so each host name is resolved once, and only the checked address is called. There
are no redirects and no proxies.
"""

import asyncio
import base64
import hashlib
import ipaddress
import json
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

import httpx

from berth.core.images import DIGEST, ImageReference
from projects.delivering.destination import embedded_ipv4, find_refusal
from projects.serving.addresses import PRIVATE, THIS_MACHINE, is_local
from scheduler.registries.base import RegistryError, RegistryFault
from scheduler.registries.logins import DOCKER_HUB, find_login

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
)  # fmt: skip
DOCKER_HUB_HOST = "registry-1.docker.io"
MAX_MANIFEST, MAX_TOKEN = 4 * 1024 * 1024, 1024 * 1024
CHALLENGE = re.compile(r'(\w+)="([^"]*)"', re.ASCII)
NETWORKS = tuple(ipaddress.ip_network(network) for network in (*PRIVATE, *THIS_MACHINE))
DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
Login = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How registries are called.

    `insecure` lists registries that are called over HTTP, as this machine's are. `own_ports` are Berth's
    ports on this machine, which are never called. `seconds` limits each lookup.
    """

    insecure: frozenset[str] = frozenset()
    own_ports: frozenset[int] = frozenset()
    seconds: float = 20.0


@dataclass(slots=True)
class RegistryClient:
    """Client for all registries. It is used by the tasks of one event loop."""

    access: RegistryAccess
    _tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    async def fetch_digest(self, image: ImageReference, auth: str) -> str:
        """Return the digest of the image's tag. Raises RegistryError."""
        try:
            async with asyncio.timeout(self.access.seconds):
                return await _Lookup(self.access, self._tls, image, find_login(auth, image)).run()
        except TimeoutError:
            text = f"Registry {image.registry} did not answer within {self.access.seconds:g} s."
            raise RegistryError(RegistryFault.TIMEOUT, text) from None
        except OSError as error:
            text = f"Registry {image.registry} cannot be reached: {error.strerror or error}."
            raise RegistryError(RegistryFault.UNREACHABLE, text) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = f"Registry {image.registry} cannot be reached: {str(error) or type(error).__name__}."
            if "WRONG_VERSION_NUMBER" in text:
                text += " It does not use TLS. An admin can list it in BERTH_INSECURE_REGISTRIES."
            raise RegistryError(RegistryFault.UNREACHABLE, text) from None


@dataclass(slots=True)
class _Lookup:
    """One lookup: a request for the manifest, repeated with a login if the registry asks for one."""

    access: RegistryAccess
    tls: ssl.SSLContext
    image: ImageReference
    login: Login | None

    async def run(self) -> str:
        async with httpx.AsyncClient(verify=self.tls, trust_env=False, timeout=self.access.seconds) as http:
            headers = {"Accept": ", ".join(MANIFEST_TYPES), "User-Agent": "berth"}
            status, response_headers, _ = await self._call(http, "HEAD", headers)
            if status == HTTPStatus.UNAUTHORIZED:
                headers["Authorization"] = await self._authorize(http, response_headers)
                status, response_headers, _ = await self._call(http, "HEAD", headers)
            self._check(status)
            digest = response_headers.get("docker-content-digest", "")
            if DIGEST.fullmatch(digest):
                return digest
            status, _, body = await self._call(http, "GET", headers)
            self._check(status)
            return f"sha256:{hashlib.sha256(body).hexdigest()}"

    async def _call(
        self, http: httpx.AsyncClient, method: str, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        registry = self.image.registry
        scheme = "http" if self._is_insecure else "https"
        host = DOCKER_HUB_HOST if registry == DOCKER_HUB else registry
        path = f"/v2/{self.image.repository}/manifests/{self.image.tag}"
        return await self._send(http, method, f"{scheme}://{host}{path}", headers, MAX_MANIFEST)

    @property
    def _is_insecure(self) -> bool:
        if self.image.registry in self.access.insecure:
            return True
        host = urlsplit(f"//{self.image.registry}").hostname or ""
        return host == "localhost" or (_is_literal(host) and ipaddress.ip_address(host).is_loopback)

    async def _authorize(self, http: httpx.AsyncClient, headers: Mapping[str, str]) -> str:
        """Return the Authorization header that the registry's challenge asks for."""
        challenge = headers.get("www-authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic" and self.login:
            return _basic(self.login)
        if scheme == "bearer":
            return f"Bearer {await self._fetch_token(http, dict(CHALLENGE.findall(challenge)))}"
        raise self._unauthorized()

    async def _fetch_token(self, http: httpx.AsyncClient, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        if urlsplit(realm).scheme not in (("https", "http") if self._is_insecure else ("https",)):
            raise self._failed("names no https address for tokens")
        scope = challenge.get("scope") or f"repository:{self.image.repository}:pull"
        query = {"service": challenge.get("service", ""), "scope": scope}
        url = realm + ("&" if urlsplit(realm).query else "?") + urlencode(query)
        headers = {"User-Agent": "berth"}
        if self.login:
            headers["Authorization"] = _basic(self.login)
        status, _, body = await self._send(http, "GET", url, headers, MAX_TOKEN)
        if status in DENIED:
            raise self._unauthorized()
        if status != HTTPStatus.OK:
            raise self._failed(f"answered a request for a token with status {status}")
        try:
            content = json.loads(body)
            return str(content.get("token") or content["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise self._failed("answered a request for a token without one") from None

    def _check(self, status: int) -> None:
        if status in DENIED:
            raise self._unauthorized()
        if status == HTTPStatus.NOT_FOUND:
            text = f"Registry {self.image.registry} has no image {self.image.repository}:{self.image.tag}."
            raise RegistryError(RegistryFault.NOT_FOUND, text)
        if status != HTTPStatus.OK:
            raise self._failed(f"answered with status {status}")

    def _unauthorized(self) -> RegistryError:
        text = f"Registry {self.image.registry} does not allow pulls of {self.image.repository}"
        if self.login:
            text += f" to user {self.login[0]}. Check the registry secret of the project or the pool."
        else:
            text += " without credentials. Set a registry secret in the project or the pool."
        return RegistryError(RegistryFault.UNAUTHORIZED, text)

    def _failed(self, what: str) -> RegistryError:
        return RegistryError(RegistryFault.FAILED, f"Registry {self.image.registry} {what}.")

    async def _send(
        self, http: httpx.AsyncClient, method: str, url: str, headers: Mapping[str, str], limit: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request to the checked address of the URL's host. Return status, headers and body."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = await self._resolve(host, port)
        target = httpx.URL(url).copy_with(host=address)
        named = {**headers, "Host": parts.netloc.rpartition("@")[2]}
        extensions = {"sni_hostname": host}
        async with http.stream(method, target, headers=named, extensions=extensions) as response:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    raise self._failed(f"answered with more than {limit} bytes")
            return response.status_code, response.headers, body

    async def _resolve(self, host: str, port: int) -> str:
        """Return the address of a host. Raises RegistryError if any of its addresses must not be called."""
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in entries]
        for text in addresses:
            address = ipaddress.ip_address(text.partition("%")[0])
            reason = find_refusal(address, NETWORKS)
            if reason is None and port in self.access.own_ports and is_local(embedded_ipv4(address)):
                reason = "a port of Berth itself"
            if reason is not None:
                message = f"Registry {host} resolves to {text}, {reason}."
                raise RegistryError(RegistryFault.FORBIDDEN, message)
        return addresses[0]


def _basic(login: Login) -> str:
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
