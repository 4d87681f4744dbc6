"""An EC2 machine that moto launches and this machine really boots, with user data and metadata."""

import base64
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.journeys.machines.booted_machine import BootedMachine
from tests.journeys.on_hosts.host_namespaces import SERVER, NamespaceHost
from tests.pools.aws.ec2_account import Ec2Account

METADATA = "/latest/meta-data/"


@dataclass(frozen=True)
class Ec2Machine:
    """The computer behind the account's only EC2 machine. `values` contains its metadata, which is served at
    `url`.
    """

    ec2: Ec2Account
    machine: BootedMachine
    workspaces: Path
    values: dict[str, str]
    url: str

    def boot(self, instance_id: str) -> str:
        """Boot the machine and run its user data as cloud-init does. Return the output of the user data.

        The image of the machine has Python with Ray.
        """
        client = self.ec2.clients().ec2
        attribute = client.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        script = self.machine.directory / "user-data"
        script.write_bytes(base64.b64decode(attribute["UserData"]["Value"]))
        self.values["instance-id"] = instance_id
        self.machine.boot()
        variables = {
            "BERTH_METADATA_URL": self.url, "BERTH_NODE_PYTHON": sys.executable,
            "BERTH_NODE_WORKSPACES": str(self.workspaces), "BERTH_NODE_START_SECONDS": "1700",
        }  # fmt: skip
        return self.machine.run("sh", str(script), **variables)


@contextmanager
def ec2_machine(ec2: Ec2Account, host: NamespaceHost, workspaces: Path) -> Iterator[Ec2Machine]:
    machine, values = BootedMachine(host), {"local-ipv4": host.address}
    try:
        with metadata_service(values) as url:
            yield Ec2Machine(ec2, machine, workspaces, values, url)
    finally:
        machine.delete_control_groups()


@contextmanager
def metadata_service(values: Mapping[str, str]) -> Iterator[str]:
    """Serve these values to machines in network namespaces, as the metadata service of EC2 does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.get(self.path.removeprefix(METADATA))
            self._send(404 if value is None else 200, value or "")

        def do_PUT(self) -> None:
            self._send(200, "session-token")

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer((SERVER, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield f"http://{SERVER}:{server.server_port}"
        finally:
            server.shutdown()
