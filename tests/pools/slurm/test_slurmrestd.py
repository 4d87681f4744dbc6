"""Tests for slurmrestd, in addition to the contract of all providers: failures and bad responses."""

import base64
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pools.providers.base import InstanceState, ProviderError, ProviderErrorKind
from pools.providers.slurm.jobs import parse_name
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.connection import Server
from pools.providers.slurm.rest.versions import Api
from pools.providers.slurm.settings import slurm_settings
from tests.fakes.slurm.rest import NOW, TOKEN, USER, FakeSlurmRest, Handler, serve
from tests.pools.slurm.stage import VARIABLES, make_slurm, order
from tests.support.certificates import Authority

Kind = ProviderErrorKind


@pytest.fixture(params=["v0.0.42", "v0.0.38"])
def rest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeSlurmRest]:
    with serve(FakeSlurmRest(make_slurm(tmp_path), request.param)) as running:
        yield running


def provider_of(
    rest: FakeSlurmRest, url: str = "", token: str = TOKEN, ca: str = "", **settings: Any
) -> SlurmProvider:
    values = slurm_settings({
        "partition": "gpu", "rest_url": url or rest.url, "rest_user": USER, "directory": "~/.berth",
        **settings,
    })  # fmt: skip
    server, versions = Server(values.rest_url or "", USER, token, ca), dict[str, Api]()
    client = SlurmRest(values, lambda: server, versions, now=now)
    return SlurmProvider(values, client, "here", variables=lambda order: VARIABLES, now=now)


def now() -> datetime:
    return datetime.fromtimestamp(NOW, UTC)


def failure(provider: SlurmProvider) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        provider.list_instances("small")
    assert TOKEN not in raised.value.message
    return raised.value


def respond(status: int, content: bytes, **headers: str) -> Any:
    return lambda handler: handler.send(status, content, headers)


def test_error_for_a_rejected_token_names_the_user_and_the_remedy(rest: FakeSlurmRest) -> None:
    error = failure(provider_of(rest, token=TOKEN.replace("eyJz", "eyJa")))
    assert error.kind is Kind.CREDENTIALS
    assert "rejects the token of user berth. Create another with `scontrol token" in error.message


def test_unspecified_error_names_the_token_and_the_controller_as_possible_causes(
    rest: FakeSlurmRest,
) -> None:
    error = {"description": "Failed while looking for jobs", "error_number": -1, "error": "Unspecified error"}
    rest.faults["jobs"] = lambda handler: handler.send_json({"errors": [error]}, 500)
    failed = failure(provider_of(rest))
    assert failed.kind is Kind.TIMEOUT
    assert "Failed while looking for jobs (Unspecified error)" in failed.message
    assert "slurmctld does not respond, or it rejects the token of user berth" in failed.message


def test_redirect_does_not_receive_the_token(rest: FakeSlurmRest, tmp_path: Path) -> None:
    with serve(FakeSlurmRest(make_slurm(tmp_path / "other"), rest.version)) as other:
        for path in ("openapi", "jobs"):
            rest.faults = {path: respond(307, b"", Location=f"{other.url}/slurm/{rest.version}/jobs/")}
            error = failure(provider_of(rest))
            assert error.kind is Kind.SETTINGS
            assert "Berth does not follow redirects" in error.message
        assert other.calls == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Kind.CREDENTIALS), (404, Kind.SETTINGS), (429, Kind.THROTTLED), (500, Kind.BROKEN),
     (502, Kind.TIMEOUT), (503, Kind.TIMEOUT)],
)  # fmt: skip
def test_proxy_status_determines_the_kind_of_error(
    rest: FakeSlurmRest, status: int, kind: ProviderErrorKind
) -> None:
    rest.faults["jobs"] = respond(status, b"<html>Bad gateway: " + TOKEN.encode())
    assert failure(provider_of(rest)).kind is kind


@pytest.mark.parametrize(
    "content",
    [
        b"", b"<html>", b"[]", b"{}", b'{"jobs": {}}', b'{"jobs": [1]}', b"[" * 100_000, b"\xff\xfe",
        b'{"jobs": [{"name": "berth.here.small.0.abc", "user_name": "berth", "job_state": "RUNNING"}]}',
        b'{"jobs": [{"name": "berth.here.small.0.abc", "user_name": "berth", "job_id": 7}]}',
        b'{"jobs": [{"name": "berth.here.small.0.abc", "user_name": "", "job_state": "RUNNING"}]}',
        b'{"jobs": [{"name": "berth.here.small.0.abc", "user_name": "berth", "job_id": 1e999}]}',
        b'{"jobs": [{"name": "berth.here.small.%s.abc", "user_name": "berth"}]}' % (b"9" * 5000),
    ],
)  # fmt: skip
def test_unreadable_job_list_is_an_error_rather_than_an_empty_list(
    rest: FakeSlurmRest, content: bytes
) -> None:
    rest.faults["jobs"] = respond(200, content)
    error = failure(provider_of(rest))
    assert error.kind is Kind.BROKEN
    assert "that Berth cannot read" in error.message


def test_truncated_response_is_an_error(rest: FakeSlurmRest) -> None:
    rest.faults["jobs"] = respond(200, b'{"jobs": []', **{"Content-Length": "4000"})
    assert failure(provider_of(rest)).kind is Kind.TIMEOUT


def test_oversized_response_is_not_read_to_the_end(
    rest: FakeSlurmRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.slurm.rest.connection.RESPONSE_BYTES_MAX", 1024**2)

    def send_endlessly(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not handler.rest.is_over.is_set():
            handler.wfile.write(b" " * 65536)

    rest.faults["jobs"] = send_endlessly
    error = failure(provider_of(rest))
    assert error.kind is Kind.BROKEN
    assert "more than 1 MiB" in error.message
    assert "PrivateData=jobs" in error.message


@pytest.mark.heavy
@pytest.mark.parametrize("trickles", [False, True])
def test_hanging_server_raises_a_timeout_error(
    rest: FakeSlurmRest, monkeypatch: pytest.MonkeyPatch, trickles: bool
) -> None:
    def hang(handler: Handler) -> None:
        if trickles:
            handler.send_response(200)
            handler.end_headers()
        while not handler.rest.is_over.wait(0.05):
            handler.wfile.write(b" " * trickles)

    provider = provider_of(rest)
    provider.list_instances("small")
    rest.faults["jobs"] = hang
    monkeypatch.setattr("pools.providers.slurm.rest.client.QUERY_SECONDS", 0.3)
    error = failure(provider)
    assert error.kind is Kind.TIMEOUT
    assert "did not respond within 0.3 s" in error.message


def test_unreachable_server_raises_a_timeout_error(rest: FakeSlurmRest) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = failure(provider_of(rest, url=f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert error.kind is Kind.TIMEOUT
    assert "cannot be reached" in error.message


def test_certificate_of_an_unknown_authority_is_rejected_before_the_token_is_sent(
    rest: FakeSlurmRest, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    listener = rest.server.socket
    rest.server.socket = authority.server("127.0.0.1").wrap_socket(listener, server_side=True)
    url = rest.url.replace("http:", "https:")
    for ca in ("", other.file.read_text()):
        error = failure(provider_of(rest, url=url.replace("https", "HTTPS") if not ca else url, ca=ca))
        assert error.kind is Kind.SETTINGS
        assert "Set provider_settings.rest_ca" in error.message
    assert rest.calls == []
    assert provider_of(rest, url=url, ca=authority.file.read_text()).list_instances("small") == ()


def test_provider_connects_to_slurmrestd_on_a_unix_socket(rest: FakeSlurmRest, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def relay() -> None:
            for _ in range(2):
                client, _ = listener.accept()
                with client, socket.create_connection(rest.server.server_address[:2]) as server:  # type: ignore[arg-type]
                    server.sendall(client.recv(65536))
                    while part := server.recv(65536):
                        client.sendall(part)

        thread = threading.Thread(target=relay, daemon=True)
        thread.start()
        assert provider_of(rest, url=f"unix:{tmp_path}/socket").list_instances("small") == ()
        thread.join(30)


def test_error_for_unknown_versions_lists_the_supported_versions(rest: FakeSlurmRest) -> None:
    rest.version = "v0.0.99"
    error = failure(provider_of(rest))
    assert error.kind is Kind.SETTINGS
    assert "offers these API versions: v0.0.99. Berth supports v0.0.37, v0.0.38, v0.0.40" in (error.message)


def test_version_is_negotiated_again_after_an_upgrade(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    created = provider.provision(order()).instances
    rest.version = "v0.0.41"
    assert failure(provider).kind is Kind.SETTINGS
    assert provider.list_instances("small") == created


def test_submission_with_a_lost_response_is_found_by_its_name(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)

    def lose(handler: Handler) -> None:
        send, handler.send = handler.send, lambda *_: None  # type: ignore[method-assign]
        handler.route(rest.received)
        handler.send = send  # type: ignore[method-assign]
        handler.close_connection = True

    rest.faults["submit"] = lose
    with pytest.raises(ProviderError) as raised:
        provider.provision(order(count=1))
    assert raised.value.kind is Kind.TIMEOUT
    rest.faults.clear()
    repeated = replace(order(count=1), is_repeated=True)
    assert len(provider.provision(repeated).instances) == len(rest.slurm.jobs) == 1


def test_partially_accepted_launch_returns_the_accepted_jobs_and_the_reason(rest: FakeSlurmRest) -> None:
    rest.slurm.set(accepts=1)
    result = provider_of(rest).provision(order(count=3))
    assert len(result.instances) == 1
    assert result.message.startswith("Slurm accepted 1 job of 3: Job violates accounting/QOS policy")


def test_rejected_submission_reports_slurms_reason(rest: FakeSlurmRest) -> None:
    rest.slurm.set(rejection="Invalid account or account/partition combination specified")
    with pytest.raises(ProviderError, match="Invalid account") as raised:
        provider_of(rest).provision(order())
    assert raised.value.kind is Kind.SETTINGS


def test_jobs_of_other_users_are_ignored_regardless_of_their_names(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    provider.provision(order(count=1))
    rest.slurm.add("berth.here.small.7.fedcba9876543210", user="mallory")
    assert [instance.ordinal for instance in provider.list_instances("small")] == [0]


def test_cancelling_a_job_that_has_just_ended_is_not_an_error(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    created = provider.provision(order(count=2)).instances
    error = {"error_number": 2017, "error": "Invalid job id specified"}
    rest.faults["/job/1"] = lambda handler: handler.send_json({"errors": [error]}, 500)
    provider.terminate("small", [instance.instance_id for instance in created])
    assert [job["State"] for job in rest.slurm.jobs] == ["RUNNING", "CANCELLED"]


def test_failed_cancellation_is_reported_after_all_cancellations_were_tried(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    created = provider.provision(order(count=2)).instances
    error = {"error": {"code": 2002, "message": f"Access denied to {TOKEN}"}}
    rest.faults["/job/1"] = lambda handler: handler.send_json({"status": [error]})
    with pytest.raises(ProviderError) as raised:
        provider.terminate("small", [instance.instance_id for instance in created])
    assert raised.value.message == "Access denied to TOKEN"
    assert [job["State"] for job in rest.slurm.jobs] == ["RUNNING", "CANCELLED"]


def test_cancellation_of_several_jobs_stops_at_the_first_request_without_a_response(
    rest: FakeSlurmRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = provider_of(rest)
    created = provider.provision(order(count=3)).instances
    rest.faults["/job/1"] = respond(504, b"")
    with pytest.raises(ProviderError, match="status 504"):
        provider.terminate("small", [instance.instance_id for instance in created])
    assert {job["State"] for job in rest.slurm.jobs} == {"RUNNING"}


def test_end_of_an_allocation_is_announced(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    provider.provision(order(count=1))
    rest.slurm.change(TimeLeft="5:00")
    [instance] = provider.list_instances("small")
    assert instance.interruption is not None
    assert instance.interruption.at == now() + timedelta(minutes=5)


def test_failed_job_reports_the_exit_code_of_its_script(rest: FakeSlurmRest) -> None:
    provider = provider_of(rest)
    provider.provision(order(count=1))
    rest.slurm.change(State="FAILED", exit_code=str(75 << 8))
    [instance] = provider.list_instances("small")
    assert instance.state is InstanceState.GONE
    assert "provider_settings.setup failed" in instance.message


def test_ended_jobs_are_found_in_the_accounting_database(rest: FakeSlurmRest) -> None:
    rest.slurm.set(accounting=True)
    provider = provider_of(rest)
    created = provider.provision(order()).instances
    provider.terminate("small", [instance.instance_id for instance in created])
    rest.slurm.purge()
    again = provider.provision(replace(order(), is_repeated=True)).instances
    assert [each.instance_id for each in again] == [each.instance_id for each in created]
    assert {each.state for each in again} == {InstanceState.GONE}
    rest.slurm.set(accounting="down")
    with pytest.raises(ProviderError, match="Unable to connect to database"):
        provider.provision(replace(order(), is_repeated=True))
    assert len(rest.slurm.jobs) == 2


def test_repeated_launch_request_is_submitted_if_the_database_lists_no_job(rest: FakeSlurmRest) -> None:
    rest.slurm.set(accounting=True)
    assert len(provider_of(rest).provision(replace(order(), is_repeated=True)).instances) == 2


def test_job_token_is_passed_only_in_the_environment_of_the_job(rest: FakeSlurmRest, tmp_path: Path) -> None:
    provider_of(rest, options=["--reservation=gpu-week"], constraint="a100", time_limit="24h").provision(
        order(count=1)
    )
    [body] = rest.bodies
    job = body["job"]
    environment = job.pop("environment")
    assert "token=s3cret" in json.dumps(environment)
    assert "s3cret" not in json.dumps(body)
    assert (job["reservation"], job["constraints"], job["dependency"]) == ("gpu-week", "a100", "singleton")
    script = body["script"].replace('"$HOME"', str(tmp_path))
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    # The script reads the values from the environment, and keeps them from its processes.
    pair = environment[0] if rest.is_structured else "BERTH_PILOT=" + environment["BERTH_PILOT"]
    start, _, _ = script.partition("\nsetup() {")
    command = ["env", "-i", pair, "bash", "-c", f"{start}\necho $token $order; env"]
    assert subprocess.run(command, check=False, capture_output=True).stderr == b""
    log = next((tmp_path / ".berth" / "logs").iterdir())
    assert log.read_text().splitlines()[0] == "s3cret 01234567"
    assert "s3cret" not in "".join(log.read_text().splitlines()[1:])
    assert parse_name(log.stem) is not None


def test_preview_shows_the_versions_of_slurm_and_its_api(rest: FakeSlurmRest) -> None:
    preview = provider_of(rest).preview("small", order().shape)
    assert preview.source.startswith(f"slurm 22.05.8 at {rest.url}, API {rest.version}, partition gpu (time")
    assert [node.name for node in preview.usable_nodes] == ["n0", "n1", "n2", "n3"]
    assert preview.findings == ()


def test_slurm_preview_reports_machines_that_cannot_be_used(rest: FakeSlurmRest) -> None:
    states = (
        {"state": ["IDLE", "DRAIN"]} if rest.is_structured else {"state": "idle", "state_flags": ["DRAIN"]}
    )
    rest.slurm.set(broken={"n1": {**states, "reason": "bad disk"}})
    nodes = {node.name: node for node in provider_of(rest).preview("small", order().shape).nodes}
    assert nodes["n1"].obstacle == "Slurm reports idle+drain: bad disk"
    assert nodes["n0"].obstacle == ""


@pytest.mark.parametrize(
    ("lifetime", "finding"),
    [
        (timedelta(seconds=-1), "The Slurm token expired on 2027-01-15 07:59 UTC."),
        (timedelta(days=6), "The Slurm token expires on 2027-01-21 08:00 UTC, and Slurm then rejects it."),
        (timedelta(days=8), ""),
    ],
)
def test_slurm_preview_reports_a_token_that_expires_soon(
    rest: FakeSlurmRest, lifetime: timedelta, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_expiring_at(now() + lifetime)
    monkeypatch.setattr("tests.fakes.slurm.rest.TOKEN", token)
    preview = provider_of(rest, token=token).preview("small", order().shape)
    assert "".join(each.message for each in preview.findings) == finding


def token_expiring_at(at: datetime) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(at.timestamp()), "sun": USER}).encode())
    return f"eyJhbGciOiJIUzI1NiJ9.{claims.decode().rstrip('=')}.c2lnbmF0dXJl"
