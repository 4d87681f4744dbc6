"""Tests for plugins and environments in the pool form, and for the page of a booting node."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from pools.models import Environment, Node, NodePool, PluginSecret
from pools.services import edit_pool
from pools.services.environments import environment_secrets
from pools.web.forms import PoolForm
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

TOKEN = "hf_verysecrettoken"


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def form_values(text: str, **changed: str) -> dict[str, str]:
    values = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*?value="([^"]*)"', text))
    for name, inner in re.findall(r'<textarea[^>]*name="([^"]+)"[^>]*>\n?([^<]*)</textarea>', text):
        values[name] = inner.replace("&gt;", ">").replace("&quot;", '"').replace("&#x27;", "'")
    values |= dict(re.findall(r'<select[^>]*name="([^"]+)".*?value="([^"]*)" selected', text, re.DOTALL))
    values.pop("csrfmiddlewaretoken", None)
    return {**values, **changed}


def save(alice: Client, pool: NodePool, **changed: str) -> tuple[int, str]:
    page = alice.get(f"/node-pools/{pool.name}/settings").content.decode()
    answer = alice.post(f"/node-pools/{pool.name}/settings", form_values(page, **changed))
    return answer.status_code, answer.content.decode()


def stored(pool: NodePool) -> NodePool:
    return NodePool.objects.get(pk=pool.pk)


@pytest.mark.shows("PLG-01", "PLG-41", "PLG-47")
def test_pool_form_stores_plugins_and_environment(cast: Cast, alice: Client) -> None:
    status, _ = save(
        alice, cast.pool, plugins="- huggingface\n- mps: {thread_percentage: 50}\n", python="3.12",
        pip="numpy>=2\n\nscipy", indexes="https://a.test/simple = scipy\nhttps://b.test/simple",
        apt="git", env="A=b=c", secret_huggingface_token=TOKEN,
    )  # fmt: skip
    assert status == 302
    pool = stored(cast.pool)
    assert [(plugin["name"], plugin["parameters"]) for plugin in pool.plugins] == [
        ("huggingface", {}), ("mps", {"thread_percentage": 50}),
    ]  # fmt: skip
    assert pool.environment == {
        "python": "3.12", "pip": ["numpy>=2", "scipy"], "apt": ["git"], "env": {"A": "b=c"},
        "indexes": [
            {"url": "https://a.test/simple", "packages": ["scipy"]},
            {"url": "https://b.test/simple", "packages": []},
        ],
    }  # fmt: skip
    page = alice.get(f"/node-pools/{pool.name}/settings").content.decode()
    assert "- mps: {thread_percentage: 50}" in page
    assert "Leave empty to keep the secret" in page
    assert TOKEN not in page + alice.get("/activity").content.decode()
    version = pool.version
    assert save(alice, pool)[0] == 302, "saved as it was shown"
    assert (stored(pool).version, stored(pool).plugins) == (version, pool.plugins)
    assert environment_secrets(pool, stored(pool).built_environment) == {"HF_TOKEN": TOKEN}


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ({"plugins": "- torhc"}, "plugins", "Entry 1, name: Not an installed plugin"),
        ({"plugins": "- torch\n- torch"}, "plugins", "Entry 2, name: Listed twice"),
        ({"plugins": "torch"}, "plugins", "This is not a list"),
        ({"plugins": "- [torch"}, "plugins", "This is not valid YAML"),
        (
            {"plugins": "- mps: {thread_percentage: 0}"},
            "plugins",
            "Entry 1, parameters.thread_percentage: Must be",
        ),
        ({"pip": "--index-url=x"}, "pip", "Entry 1: Not allowed. Enter a pip requirement"),
        ({"indexes": "ftp://x"}, "indexes", "Entry 1, url: Must be a URL"),
        ({"env": "A"}, "env", "A has no equals sign"),
        ({"env": "PATH=x"}, "env", "PATH: Set by Berth"),
        ({"python": "2.7"}, "python", "Enter a valid Python version."),
    ],
)
def test_invalid_environment_shows_an_error_on_its_field(
    cast: Cast, alice: Client, typed: dict[str, str], field: str, expected: str
) -> None:
    status, page = save(alice, cast.pool, **typed)
    assert status == 422
    errors = re.findall(rf'id="pool_{field}_error">([^<]*)<', page)
    assert errors, page
    assert errors[0].startswith(expected) or expected in errors[0]
    assert stored(cast.pool).plugins == []
    assert not PluginSecret.objects.exists()


def test_saved_token_is_not_shown_again(cast: Cast, alice: Client) -> None:
    _, page = save(alice, cast.pool, plugins="- nosuch", secret_huggingface_token=TOKEN)
    assert TOKEN not in page
    assert 'name="secret_huggingface_token"' in page
    assert isinstance(PoolForm().fields["secret_huggingface_token"].widget.input_type, str)


@pytest.fixture
def booting_node(cast: Cast) -> Node:
    edit_pool(actor=cast.alice, pool=cast.pool, changes={"environment": {"pip": ["numpy"]}})
    environment = Environment.objects.get()
    phases = [
        {"phase": "apt", "state": "done", "seconds": 2, "message": ""},
        {"phase": "python", "state": "failed", "seconds": 1, "message": "No space left <on> device"},
    ]
    return make.node(cast.pool, state="booting", environment=environment, phases=phases)


def test_node_page_shows_bootstrap_phases(
    cast: Cast, alice: Client, sign_in: SignIn, booting_node: Node
) -> None:
    page = alice.get(f"/nodes/{booting_node.name}").content.decode()
    states = re.findall(r'<li( class="[a-z ]*")?><span>([^<]*)</span>', page)
    assert states[1:5] == [
        (' class="entered"', "Debian packages"), (' class="entered bad"', "Python"), ("", "Python packages"),
        ("", "Berth&#x27;s code"),
    ]  # fmt: skip
    output = re.findall(r"<h3>Output of (.*?)</h3><pre[^>]*>(.*?)</pre>", page)
    assert output == [("Python", "No space left &lt;on&gt; device")]
    assert "numpy" in page
    assert "#!/bin/sh" in page
    theirs = sign_in("dave").get(f"/nodes/{booting_node.name}").content.decode()
    assert "No space left" not in theirs
    assert booting_node.instance_id not in theirs
    assert alice.get("/nodes/nosuch").status_code == 404
    assert f'href="/nodes/{booting_node.name}"' in alice.get(f"/node-pools/{cast.pool.name}").content.decode()


@pytest.mark.heavy
def test_node_page_explains_a_missing_environment(cast: Cast, alice: Client) -> None:
    node = make.node(cast.pool)
    assert "The pool declares no environment" in alice.get(f"/nodes/{node.name}").content.decode()


@pytest.mark.heavy
def test_node_page_shows_exit_code_and_last_output_of_the_start_script(
    cast: Cast, alice: Client, sign_in: SignIn
) -> None:
    # The node has ended, because a failed start script ends the node immediately.
    phase = {"phase": "start", "state": "failed", "seconds": 3, "message": "pip: <no> space", "exit_code": 7}
    node = make.node(cast.pool, state="ended", ended_at=timezone.now(), phases=[phase])
    page = alice.get(f"/nodes/{node.name}").content.decode()
    assert "<dt>Exit code</dt><dd>7</dd>" in page
    assert "pip: &lt;no&gt; space" in page
    assert "The pool declares no environment" in page, "the start script is not a phase of an environment"
    theirs = sign_in("dave").get(f"/nodes/{node.name}").content.decode()
    assert "<dt>Exit code</dt><dd>7</dd>" in theirs
    assert "space" not in theirs, "output of machines is for platform admins"


@pytest.mark.heavy
def test_node_page_shows_the_current_node_if_its_name_was_reused(cast: Cast, alice: Client) -> None:
    ended = make.node(cast.pool, state="ended", ended_at=timezone.now(), instance_id="i-former")
    make.node(cast.pool, 0, state="booting", instance_id="i-present")
    page = alice.get(f"/nodes/{ended.name}").content.decode()
    assert "i-present" in page
    assert "i-former" not in page
