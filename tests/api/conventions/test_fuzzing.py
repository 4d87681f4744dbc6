"""Tests that fuzz every documented REST operation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import strategies

from pools.models import Node
from projects.models import Membership, Quota
from projects.services import workloads
from scheduler.models import Cycle
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.services.stage import document

CHECK_NAMES = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip
CALLS = 2  # calls per operation; more calls have not revealed further errors


@contextmanager
def keep_connection_open() -> Iterator[None]:
    """Keep the database connection open between requests. The application runs in the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def existing_parameters(cast: Cast) -> dict[str, Any]:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    workloads.submit(actor=cast.dave, project=cast.vision, document=document())
    Node.objects.create(
        pool=cast.pool, name="local", ordinal=0, state="ready", instance_id="i-0", gpus=2, cpu_milli=8000,
        memory_mib=16384, since=workload.since,
    )  # fmt: skip
    Quota.objects.create(project=cast.vision, pool=cast.pool, gpu_milli=2000)
    return {
        "workload_id": str(workload.pk),
        "service": "chat",
        "pool": "local",
        "cycle_id": Cycle.objects.create(epoch=1, trigger="tick").pk,
        "member_id": Membership.objects.order_by("pk").values_list("pk", flat=True)[0],
        "name": {"departments": "research", "projects": "vision", "node-pools": "local", "nodes": "local"},
    }  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "every", [pytest.param(40, id="sample"), pytest.param(1, id="all", marks=pytest.mark.heavy)]
)
def test_fuzzed_requests_get_documented_responses(
    existing_parameters: dict[str, Any], alice: Caller, openapi_description: dict[str, Any], every: int
) -> None:
    # By default, the test calls every fortieth operation. `make test-heavy` calls all of them.
    import schemathesis  # this import takes half a second
    from schemathesis.checks import CHECKS, load_all_checks
    from schemathesis.core.result import Ok

    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECK_NAMES]
    described = schemathesis.openapi.from_dict(openapi_description)
    described.app = get_wsgi_application()
    operations = list(described.get_all_operations())
    assert len(operations) > 100
    for result in operations[::every]:
        assert isinstance(result, Ok)
        with keep_connection_open():
            call_with_generated_input(result.ok(), existing_parameters, alice.secret, checks)


def call_with_generated_input(
    operation: Any, existing_parameters: dict[str, Any], secret: str, checks: list[Any]
) -> None:
    @hypothesis.settings(
        max_examples=CALLS, deadline=None, derandomize=True, database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(case=operation.as_strategy(), real=strategies.booleans())
    def call(case: Any, real: bool) -> None:
        for name in case.path_parameters or {} if real else ():
            value = existing_parameters.get(name, case.path_parameters[name])
            if isinstance(value, dict):
                words = operation.path.split("/")
                value = next((each for word, each in value.items() if word in words), "local")
            case.path_parameters[name] = value
        with transaction.atomic():
            case.call_and_validate(headers={"Authorization": f"Bearer {secret}"}, checks=checks)
            transaction.set_rollback(True)

    call()
