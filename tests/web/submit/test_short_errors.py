"""Tests that errors of the submission form are short and use the units of the form."""

import pytest
from django.test import Client

from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import field_error, refresh_form

TEXT = "name: fine\nproject: vision\ncommand: run\nroles: [{gpu: 1, memory_mib: 4096}]\n"


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize("memory", ["lots", "4 apples", "-1", "99999999999"])
def test_memory_error_uses_the_units_of_the_hint(dave: Client, memory: str) -> None:
    answer = refresh_form(dave, TEXT.replace("4096", memory))
    assert field_error(answer, "roles[0].memory_mib") == (
        "Not a valid amount of memory. Enter an amount with a unit, for example 4 GiB or 512 MiB."
    )


def test_unknown_key_error_lists_only_a_few_keys_and_links_to_the_reference(dave: Client) -> None:
    page = refresh_form(dave, TEXT + "runtimes: 2h\n").content.decode()
    error = page.partition('<code class="wrap">runtimes</code>: ')[2].partition("</li>")[0]
    assert "Unknown key. " in error
    unlike = refresh_form(dave, TEXT + "zzz: 2h\n").content.decode()
    error = unlike.partition('<code class="wrap">zzz</code>: ')[2].partition("</li>")[0]
    listed = error.partition("Valid keys include ")[2].partition(".")[0]
    assert len(listed.split(", ")) == 5
    assert '<a href="/docs/documents/#workload" target="_blank">All keys' in error


def test_button_renames_a_misspelled_key_and_keeps_comments(dave: Client) -> None:
    text = TEXT.replace("{gpu: 1,", "{gpu: 1, replicsa: 3,") + "# tonight\nmax_runtim: 2h  # enough\n"
    answer = refresh_form(dave, text)
    page = answer.content.decode()
    for path, key in (("roles[0].replicsa", "replicas"), ("max_runtim", "max_runtime")):
        assert f'value="rename:{path}:{key}">Use {key}</button>' in page
        answer = refresh_form(dave, answer.context["text"], step=f"rename:{path}:{key}")
    assert answer.context["text"] == text.replace("replicsa", "replicas").replace("runtim:", "runtime:")
    assert "faults-title" not in answer.content.decode()


def test_key_already_in_the_document_is_not_offered_as_a_new_name(dave: Client) -> None:
    text = TEXT + "comand: run\n"
    assert "rename:" not in refresh_form(dave, text).content.decode()
    assert refresh_form(dave, text, step="rename:comand:command").context["text"] == text


def test_unknown_key_error_lists_all_valid_keys_if_there_are_few(dave: Client) -> None:
    page = refresh_form(dave, TEXT + "topology: {zzz: rack}\n").content.decode()
    assert "Unknown key. Allowed: preferred, required." in page
