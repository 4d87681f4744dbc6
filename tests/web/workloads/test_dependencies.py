"""Tests for dependencies on the pages of workloads and arrays."""

import pytest
from django.test import Client

from projects.models import Workload
from projects.services import arrays, workloads
from tests.cast import Cast, training
from tests.web.conftest import SignIn


def submit(cast: Cast, name: str, project: str = "vision", **changes: object) -> Workload:
    return workloads.submit(actor=cast.alice, document=training(name, project=project, **changes))


def page(client: Client, kind: str, row: object) -> str:
    return client.get(f"/{kind}/{row}").content.decode()


def test_workload_page_shows_dependencies_and_dependents(cast: Cast, sign_in: SignIn) -> None:
    first = submit(cast, "first")
    second = submit(cast, "second", after=[{"workload": "first"}, {"workload": "missing", "state": "any"}])
    third = submit(cast, "third", after=[{"workload": "second", "state": "failed"}])
    shown = page(sign_in("dave"), "workloads", second.pk)
    waits, awaited = (shown.partition(f'id="{part}-title"')[2] for part in ("waits-for", "awaited-by"))
    assert f'/workloads/{first.pk}"' in waits.partition("awaited-by")[0]
    assert "Not submitted" in waits
    assert f'/workloads/{third.pk}"' in awaited
    assert "failed" in awaited


def test_workload_page_hides_dependencies_in_other_projects(cast: Cast, sign_in: SignIn) -> None:
    prepare = submit(cast, "prepare", "speech")
    second = submit(cast, "second", after=[{"workload": "speech/prepare"}])
    submit(cast, "foreign", "speech", after=[{"workload": "vision/second"}])
    shown = page(sign_in("dave"), "workloads", second.pk)
    assert "Hidden" in shown
    assert str(prepare.pk) not in shown
    assert "foreign" not in shown
    assert "foreign" in page(sign_in("bob"), "workloads", second.pk)


@pytest.mark.heavy
def test_array_page_lists_dependent_arrays(cast: Cast, sign_in: SignIn) -> None:
    document = training("sweep", project="vision", array={"tasks": 2})
    sweep = arrays.submit(actor=cast.dave, document=document).array
    after = [{"workload": "sweep", "tasks": "same"}]
    evaluation = arrays.submit(actor=cast.dave, document={**document, "name": "eval", "after": after}).array
    shown = page(sign_in("dave"), "arrays", sweep.pk)
    assert f'/arrays/{evaluation.pk}"' in shown
    assert "task with the same index" in shown


@pytest.mark.heavy
def test_workload_without_dependencies_shows_no_empty_section(cast: Cast, sign_in: SignIn) -> None:
    shown = page(sign_in("dave"), "workloads", submit(cast, "first").pk)
    assert "waits-for-title" not in shown
    assert "awaited-by-title" not in shown
