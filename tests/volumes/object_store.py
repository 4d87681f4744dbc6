"""An object store (moto), and a server that lists and signs its objects for nodes as Berth does."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3

from berth.core.errors import BerthError
from pools.buckets.bucket import Bucket
from pools.buckets.logins import BucketLogin
from pools.engine.volumes import Volume
from pools.runtimes.base import PodSpec, VolumeMount
from tests.contracts.pods import order

KEY_ID, KEY, SECRET = "testing", "secret-access-key", "downloads.secret"
MIB = 2**20


class ObjectStore:
    """The buckets of an object store at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=KEY_ID,
            aws_secret_access_key=KEY,
        )  # fmt: skip

    def fill(self, bucket: str, objects: dict[str, bytes]) -> None:
        """Create the bucket if needed, and store objects by key."""
        self.client.create_bucket(Bucket=bucket)
        for key, content in objects.items():
            self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def fill_directly(self, bucket: str, keys: Iterable[str]) -> None:
        """Create the bucket if needed, and store one-byte objects without a request for each of them."""
        from moto.s3.models import s3_backends  # this import takes a third of a second

        self.client.create_bucket(Bucket=bucket)
        [backend] = [
            each for backends in s3_backends.values() for each in backends.values() if bucket in each.buckets
        ]
        for key in keys:
            backend.put_object(bucket, key, b"x")

    def volume(self, source: str, **changes: Any) -> Volume:
        return Volume("data", source, endpoint=self.url, **changes)


@contextmanager
def s3_server(port: int = 0) -> Iterator[str]:
    """Serve an object store, by default on a free port, and yield its address."""
    from moto.server import ThreadedMotoServer  # this import takes a third of a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    host, bound = server.get_host_and_port()
    try:
        yield f"http://{host}:{bound}"
    finally:
        server.stop()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    with s3_server() as address:
        yield ObjectStore(address)


@contextmanager
def answering(status: int, text: str) -> Iterator[str]:
    """Run a server that gives every request this response, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()


class SigningServer:
    """A server for nodes. `volume` is served under any name.

    `before_listing` is called before each page, and `change_urls` replaces the signed URLs.
    """

    def __init__(self, volume: Volume) -> None:
        self.volume, self.size_max = volume, 100 * MIB
        self.before_listing: Callable[[], None] = lambda: None
        self.change_urls: Callable[[list[str]], list[str]] = lambda urls: urls
        self.signed: list[str] = []
        self.listings = 0
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.before_listing()
                after = parse_qs(urlsplit(self.path).query).get("after", [""])[0]
                outer.answer(self, lambda: outer.list_objects(after))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.answer(self, lambda: outer.sign(body["objects"]))

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/volumes"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def list_objects(self, after: str) -> dict[str, Any]:
        self.listings += 1
        page = self._bucket().list_page(after)
        return {**asdict(page), "size_max": self.size_max}

    def sign(self, objects: list[dict[str, str]]) -> dict[str, Any]:
        urls = self._bucket().sign_urls([(each["path"], each["etag"]) for each in objects])
        self.signed += [each["path"] for each in objects]
        return {"urls": self.change_urls(urls)}

    def answer(self, request: BaseHTTPRequestHandler, work: Callable[[], dict[str, Any]]) -> None:
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        try:
            status, body = self.status, work()
        except BerthError as error:
            status, body = error.status, error.to_problem()
        content = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def order(self, pod_id: str, script: str, **changes: Any) -> PodSpec:
        """Return the spec of a pod that mounts the volume at /data and runs a shell script."""
        mount = VolumeMount("data", self.volume.source, "/data", cache=self.volume.cache)
        values: dict[str, Any] = {"volumes": (mount,), **changes}
        return order(
            pod_id, "sh", "-c", script, volumes_url=self.url, download_secret=SECRET, **values
        )  # fmt: skip

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def _bucket(self) -> Bucket:
        return Bucket(self.volume, BucketLogin(KEY_ID, KEY))
