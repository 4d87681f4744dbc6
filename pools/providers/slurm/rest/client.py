"""Access to a Slurm cluster through slurmrestd."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pools.providers.base import LaunchRequest, ProviderError, ProviderErrorKind
from pools.providers.preview import Finding, error, warning
from pools.providers.slurm.client import Examination, Submission
from pools.providers.slurm.jobs import PilotJob, PilotName
from pools.providers.slurm.rest import responses
from pools.providers.slurm.rest.connection import Connection, Server
from pools.providers.slurm.rest.errors import (
    ALREADY_ENDED,
    NO_SUCH_JOB,
    NOTHING_FOUND,
    error_code,
    reported_errors,
    response_error,
    unreadable_error,
)
from pools.providers.slurm.rest.responses import UnreadableResponse
from pools.providers.slurm.rest.submission import submission_body
from pools.providers.slurm.rest.token import EXPIRES_SOON, token_expiry
from pools.providers.slurm.rest.versions import Api, negotiate_version
from pools.providers.slurm.settings import SlurmSettings

T = TypeVar("T")
QUERY_SECONDS = 30.0
SUBMIT_SECONDS = 60.0
Kind = ProviderErrorKind
HISTORY = timedelta(days=2)


class SlurmRest:
    """Client of a Slurm cluster behind slurmrestd.

    `server` returns the address and credentials, or raises ProviderError. `versions` caches each URL's API
    version for all pools.
    """

    def __init__(
        self, settings: SlurmSettings, server: Callable[[], Server], versions: MutableMapping[str, Api], *,
        now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self.settings, self._server, self._versions, self._now = settings, server, versions, now

    def list_jobs(self) -> list[PilotJob]:
        connection = self._connect()
        user, now = connection.server.user, self._now().timestamp()
        answer = self._get(connection, "/jobs/")
        return self._read_response(
            connection, "a list of jobs", lambda: list(responses.parse_jobs(answer, user, now))
        )

    def ended_jobs(self, names: Sequence[PilotName]) -> list[PilotJob]:
        connection = self._connect()
        if not self._negotiated_api(connection).has_accounting:
            return []
        since = f"{self._now() - HISTORY:%Y-%m-%dT%H:%M:%S}"
        answer = self._call(
            connection, "GET", "/jobs", params={"job_name": ",".join(map(str, names)), "start_time": since},
            ignored=(NOTHING_FOUND,), api="slurmdb",
        )  # fmt: skip
        user = connection.server.user
        return self._read_response(
            connection, "a list of ended jobs", lambda: list(responses.parse_accounting(answer, user))
        )

    def submit(
        self, order: LaunchRequest, names: Sequence[PilotName], variables: Mapping[str, str],
        living: Sequence[PilotName],
    ) -> Submission:  # fmt: skip
        connection = self._connect()
        api, deadline = self._negotiated_api(connection), _deadline(len(names))
        for accepted, name in enumerate(names):
            if time.monotonic() > deadline:
                return Submission(accepted, _timeout_error(connection.server))
            body = submission_body(api, self.settings, order, name, variables)
            try:
                answer = self._call(connection, "POST", "/job/submit", body=body, seconds=SUBMIT_SECONDS)
            except ProviderError as failed:
                return Submission(accepted, failed)
            if not responses.parse_number(answer.get("job_id")):
                return Submission(accepted, unreadable_error(connection.server, "a response to a submission"))
        return Submission(len(names))

    def cancel(self, jobs: Sequence[PilotJob]) -> None:
        connection = self._connect()
        failures, deadline = [], _deadline(len(jobs))
        for job in jobs:
            if time.monotonic() > deadline:
                failures.append(_timeout_error(connection.server))
                break
            try:
                self._call(connection, "DELETE", f"/job/{job.job_id}", ignored=(NO_SUCH_JOB, ALREADY_ENDED))
            except ProviderError as failed:
                failures.append(failed)
                if failed.kind is Kind.TIMEOUT:
                    break  # the next pass tries again
        if failures:
            raise failures[0]

    def examine(self, order: LaunchRequest) -> Examination:
        """Return the partitions. The job is not checked, because slurmrestd cannot validate a job without
        submitting it.
        """
        connection = self._connect()
        server = connection.server
        findings = tuple(token_findings(server.token, self._now()))
        partitions, nodes = self._get(connection, "/partitions/"), self._get(connection, "/nodes/")
        listed = self._read_response(
            connection, "a list of partitions", lambda: list(responses.parse_partitions(partitions, nodes))
        )
        release = responses.slurm_version(partitions)
        source = f"slurm {release} at {server.url}, API {self._negotiated_api(connection).version}"
        return Examination(source, listed, findings=findings)

    def _connect(self) -> Connection:
        return Connection(self._server())

    def _negotiated_api(self, connection: Connection) -> Api:
        url = connection.server.url
        api = self._versions.get(url)
        if api is None:
            api = self._versions[url] = negotiate_version(connection)
        return api

    def _get(self, connection: Connection, path: str) -> Mapping[str, Any]:
        return self._call(connection, "GET", path)

    def _call(
        self, connection: Connection, method: str, path: str, *, params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None, ignored: Collection[int] = (), api: str = "slurm",
        seconds: float | None = None,
    ) -> Mapping[str, Any]:  # fmt: skip
        """Call slurmrestd and return the JSON object of its response.

        Raises ProviderError for errors, except those whose code is in `ignored`. After status 404, the next
        call negotiates the API version again.
        """
        server = connection.server
        full_path = f"/{api}/{self._negotiated_api(connection).version}{path}"
        response = connection.call(
            method, full_path, params=params, body=body, seconds=seconds or QUERY_SECONDS
        )
        answer = response.json()
        if response.status == 404:
            self._versions.pop(server.url, None)
        all_errors = reported_errors(answer or {})
        errors = [each for each in all_errors if error_code(each) not in ignored]
        is_ignored = bool(all_errors) and not errors
        if errors or (response.status != 200 and not is_ignored):
            raise response_error(server, response, errors)
        if answer is None:
            raise unreadable_error(server, "a response")
        return answer

    def _read_response(self, connection: Connection, subject: str, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except UnreadableResponse as missing:
            raise unreadable_error(connection.server, f"{subject} without {missing}") from None
        except (ValueError, OverflowError):
            raise unreadable_error(connection.server, subject) from None


def _deadline(calls: int) -> float:
    """Return the monotonic deadline that several calls share.

    It limits how long a slow server delays other pools.
    """
    return time.monotonic() + SUBMIT_SECONDS + calls


def _timeout_error(server: Server) -> ProviderError:
    return ProviderError(Kind.TIMEOUT, f"{server.label} responds too slowly")


def token_findings(token: str, now: datetime) -> Iterable[Finding]:
    """Yield a finding if the token has expired or expires soon."""
    expiry = token_expiry(token)
    remedy = "Create another with `scontrol token lifespan=SECONDS`."
    if expiry is not None and expiry <= now:
        yield error(f"The Slurm token expired on {expiry:%Y-%m-%d %H:%M} UTC.", remedy)
    elif expiry is not None and expiry - now < EXPIRES_SOON:
        message = f"The Slurm token expires on {expiry:%Y-%m-%d %H:%M} UTC, and Slurm then rejects it."
        yield warning(message, remedy)
