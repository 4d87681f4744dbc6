"""A proxy for moto's EC2 server that adds missing EC2 behaviour and faults.

Launches are idempotent by client token, and a token that is reused with other parameters is rejected. Tests
can limit capacity, make calls fail or lose their responses, delay boots and interrupt spot machines.
"""

import re
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree

import httpx

STATUS = {"RequestLimitExceeded": 503, "InternalError": 500, "UnauthorizedOperation": 403, "AuthFailure": 401}
VERSION = "2016-11-15"
NAMESPACE = f"http://ec2.amazonaws.com/doc/{VERSION}"
NAMES = {"ec2": NAMESPACE}
FORWARDED_HEADERS = ("authorization", "x-amz-date")


@dataclass(frozen=True)
class Fault:
    """Rejects the next call with this code. If `after` is set, the call takes effect first."""

    code: str = "InternalError"
    after: bool = False


@dataclass
class Ec2Proxy:
    """State of the proxy. `capacity` limits the number of machines by lifecycle. None means unlimited.

    Machines stay `booting` until `boot` is called, unless they boot immediately.
    """

    moto: str
    capacity: dict[str, int | None] = field(default_factory=lambda: {"spot": None, "on-demand": None})
    short_of: str = "InsufficientInstanceCapacity"
    boots_immediately: bool = True
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    marked_for_termination: dict[str, datetime] = field(default_factory=dict)
    interrupted: set[str] = field(default_factory=set)
    booted: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    unending: set[str] = field(default_factory=set)
    launched: dict[str, list[str]] = field(default_factory=lambda: {"spot": [], "on-demand": []})
    _answers: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Reading the certificates of the system would take longer than most tests.
        self.http = httpx.Client(base_url=self.moto, timeout=120, verify=False)
        self._lock = threading.Lock()

    # --- set by the test

    def next(self, action: str, *faults: Fault) -> None:
        self.faults.setdefault(action, deque()).extend(faults)

    def boot(self, *instance_ids: str) -> None:
        self.booted |= set(instance_ids) or {
            instance_id for ids in self.launched.values() for instance_id in ids
        }

    def interrupt_spot_machine(self, instance_id: str, noticed_at: datetime) -> None:
        self.marked_for_termination[instance_id] = noticed_at

    def end_spot_machine(self, instance_id: str) -> None:
        """Terminate a machine as EC2 does at the end of a spot interruption."""
        self._forward({}, {"Action": "TerminateInstances", "Version": VERSION, "InstanceId.1": instance_id})
        self.interrupted.add(instance_id)

    def count(self, action: str) -> int:
        return Counter(name for name, _ in self.calls)[action]

    def living(self) -> set[str]:
        """Return the IDs of launched machines that incur costs now, read directly from moto."""
        launched = {instance_id for ids in self.launched.values() for instance_id in ids}
        # By default, moto lists only the first 100 launches, of all tests in this process.
        body = {"Action": "DescribeInstances", "Version": VERSION, "MaxResults": "100000"}
        return _alive(self._forward({}, body).text) & launched

    # --- handlers

    def answer(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        with self._lock:
            action = form["Action"]
            self.calls.append((action, form))
            waiting = self.faults.get(action)
            fault = waiting.popleft() if waiting else None
            if fault is not None and not fault.after:
                return _rejection(fault.code)
            status, body = self._play(action, headers, form)
            if fault is not None:
                return 0, b""
            return status, body

    def _play(self, action: str, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        if action == "CreateFleet":
            return self._create_fleet(headers, form)
        if action == "TerminateInstances" and self.unending & set(form.values()):
            return 200, _empty(action)
        answer = self._forward(headers, form)
        text = answer.text
        if action == "DescribeInstances":
            text = self._show_states(text)
        if action == "DescribeSpotInstanceRequests":
            text = self._add_interruptions(text)
        return answer.status_code, text.encode()

    def _create_fleet(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        """Launch machines up to the capacity. An empty launch is not stored under its client token."""
        token = form["ClientToken"]
        parameters = {key: value for key, value in form.items() if key != "ClientToken"}
        if token in self._answers:
            first, body = self._answers[token]
            return (200, body) if first == parameters else _rejection("IdempotentParameterMismatch")
        kind = form["TargetCapacitySpecification.DefaultTargetCapacityType"]
        if kind == "on-demand" and self._has_spot_request_tags(form):
            return 200, _fleet_answer("fleet-none", _NO_SPOT_REQUESTS, "")
        requested = int(form["TargetCapacitySpecification.TotalTargetCapacity"])
        room = self.capacity[kind]
        count = requested if room is None else min(requested, max(room - self._used(kind), 0))
        errors = self._shortage(kind) if count < requested else ""
        if count == 0:
            return 200, _fleet_answer("fleet-none", errors, "")
        form = {**form, "TargetCapacitySpecification.TotalTargetCapacity": str(count)}
        answer = self._forward(headers, form)
        if answer.status_code != 200:
            return answer.status_code, answer.content
        instance_set = re.search(r"<fleetInstanceSet>.*</fleetInstanceSet>", answer.text, re.DOTALL)
        assert instance_set is not None, answer.text
        self.launched[kind] += re.findall(r"i-[0-9a-f]+", instance_set[0])
        body = _fleet_answer("fleet-some", errors, instance_set[0])
        self._answers[token] = parameters, body
        return 200, body

    def _has_spot_request_tags(self, form: dict[str, str]) -> bool:
        """Return whether the template tags spot requests, which makes EC2 reject on-demand launches."""
        template_id = form["LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId"]
        query = {"Action": "DescribeLaunchTemplateVersions", "LaunchTemplateId": template_id}
        return "spot-instances-request" in self._forward({}, query | {"Version": form["Version"]}).text

    def _used(self, kind: str) -> int:
        return len(self.living() & set(self.launched[kind]))

    def _shortage(self, kind: str) -> str:
        return (
            f"<errorSet><item><lifecycle>{kind}</lifecycle><errorCode>{self.short_of}</errorCode>"
            "<errorMessage>no capacity in this test</errorMessage></item></errorSet>"
        )

    def _show_states(self, text: str) -> str:
        tree = ElementTree.fromstring(text)
        for listed in tree.iter(f"{{{NAMESPACE}}}instancesSet"):
            for item in list(listed):
                instance_id = item.findtext("ec2:instanceId", "", NAMES)
                state = item.find("ec2:instanceState/ec2:name", NAMES)
                if instance_id in self.hidden:
                    listed.remove(item)
                elif not self.boots_immediately and instance_id not in self.booted and state is not None:
                    state.text = "pending" if state.text == "running" else state.text
                reason = item.find("ec2:stateReason/ec2:code", NAMES)
                if instance_id in self.interrupted and reason is not None:
                    reason.text = "Server.SpotInstanceTermination"
        return ElementTree.tostring(tree, encoding="unicode")

    def _add_interruptions(self, text: str) -> str:
        items = []
        for instance_id, since in self.marked_for_termination.items():
            items.append(
                f"<item><spotInstanceRequestId>sir-{instance_id}</spotInstanceRequestId><state>active</state>"
                f"<status><code>marked-for-termination</code><message>no capacity</message>"
                f"<updateTime>{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}</updateTime></status>"
                f"<instanceId>{instance_id}</instanceId></item>"
            )
        return text.replace("</spotInstanceRequestSet>", "".join(items) + "</spotInstanceRequestSet>")

    def _forward(self, headers: dict[str, str], form: dict[str, str]) -> httpx.Response:
        passed_on = {key: value for key, value in headers.items() if key.lower() in FORWARDED_HEADERS}
        passed_on.setdefault(
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, "
            "Signature=0",
        )
        passed_on["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
        return self.http.post("/", headers=passed_on, content=urlencode(form))


def serve(proxy: Ec2Proxy) -> tuple[ThreadingHTTPServer, str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the headers and the body are written separately

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            form = dict(parse_qsl(body.decode(), keep_blank_values=True))
            if "Action" not in form:  # SSM speaks JSON
                self._pass_on(body)
                return
            status, answer = proxy.answer(dict(self.headers), form)
            if status == 0:  # drop the connection
                self.close_connection = True
                return
            self._send(status, answer, "text/xml")

        def _pass_on(self, body: bytes) -> None:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
            answer = proxy.http.post("/", headers=headers, content=body)
            self._send(answer.status_code, answer.content, answer.headers["content-type"])

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


def _alive(text: str) -> set[str]:
    living = set()
    for item in re.split(r"(?=<instanceId>i-)", text)[1:]:
        instance_id = re.match(r"<instanceId>(i-[0-9a-f]+)", item)
        state = re.search(r"<instanceState>.*?<name>([a-z-]+)</name>", item, re.DOTALL)
        if instance_id and state and state[1] in ("pending", "running"):
            living.add(instance_id[1])
    return living


_NO_SPOT_REQUESTS = (
    "<errorSet><item><lifecycle>on-demand</lifecycle><errorCode>InvalidParameterValue</errorCode>"
    "<errorMessage>tags for spot requests, but there is no spot request</errorMessage></item></errorSet>"
)


def _rejection(code: str) -> tuple[int, bytes]:
    error = f"<Error><Code>{code}</Code><Message>scripted error</Message></Error>"
    return STATUS.get(code, 400), f"<Response><Errors>{error}</Errors></Response>".encode()


def _empty(action: str) -> bytes:
    return f'<{action}Response xmlns="{NAMESPACE}"><instancesSet/></{action}Response>'.encode()


def _fleet_answer(fleet_id: str, errors: str, instances: str) -> bytes:
    return (
        f'<CreateFleetResponse xmlns="{NAMESPACE}"><fleetId>{fleet_id}</fleetId>{errors}{instances}'
        "</CreateFleetResponse>"
    ).encode()
