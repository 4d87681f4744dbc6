"""Tests that admins can set idle rules with the commands in the guide and that other users see them."""

import json
import shlex

import pytest

from berth.core.idle_rule import read_rule
from projects.models import Project
from tests.cast import Cast
from tests.cli.conftest import ROOT, Berth, token_of
from tests.factories import workload

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.heavy
def test_commands_in_the_guide_set_and_show_idle_rules(berth: Berth, cast: Cast) -> None:
    guide = (ROOT / "docs" / "admins.md").read_text()
    example = guide.partition("## Idle GPUs")[2].split("```")[1]
    admin, member = {"BERTH_TOKEN": token_of(cast.alice)}, {"BERTH_TOKEN": token_of(cast.dave)}
    train = workload(cast.vision, "train", gpu_milli_min=1000, pools=["local"])
    shown = []
    for line in example.strip().splitlines():
        done = berth(*shlex.split(line)[1:], **admin)
        assert done.returncode == 0, (line, done.stderr)
        described = json.loads(berth("describe", str(train.pk), "-o", "json", **member).stdout)
        shown.append(described["idle"] and described["idle"]["rules"])
    of_pool = "below=5%,after=1h,action=suspend,grace=30m,warmup=10m"
    assert shown == [[of_pool], ["below=5%,after=4h,action=warn,warmup=10m"], None, [of_pool]]
    assert read_rule(Project.objects.get(name="vision").idle_rule) is None
    assert of_pool in berth("pool", "describe", "local", **admin).stdout
    assert "suspended 30m later" in " ".join(berth("describe", str(train.pk), **member).stdout.split())
    assert "suspended 30m later" in " ".join(berth("why", str(train.pk), **member).stdout.split())

    rejected = berth("project", "edit", "vision", "--idle-rule", "action=suspnd", **admin)
    assert "Did you mean `suspend`?" in rejected.stderr
    assert berth("project", "edit", "vision", "--idle-rule", "action=none", **member).returncode == 1
