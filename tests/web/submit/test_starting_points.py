"""Tests for the menu of starting points on the submission page."""

import re

import pytest
from django.test import Client

from projects.services.workloads.templates import set_template
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

TEXT = "command: sleep 1\nroles: [{replicas: 1}]\n"


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    for name in ("nightly", "notebook"):
        set_template(actor=cast.dave, project=cast.vision, name=name, text=TEXT)
    return sign_in("dave")


def test_menu_lists_built_in_starting_points_and_the_templates_of_each_project(dave: Client) -> None:
    menu = dave.get("/submit").content.decode().partition('id="starts"')[2].partition("</details>")[0]
    assert re.findall(r"<h2[^>]*>([^<]+)</h2>", menu) == ["Built-in", "Templates in vision"]
    names = re.findall(r'href="\?template=vision/(\w+)"[^>]*>(\w+)<', menu)
    assert names == [("nightly", "nightly"), ("notebook", "notebook")]


@pytest.mark.parametrize("start", ["kind=gang", "template=vision/nightly"])
def test_choosing_a_starting_point_keeps_the_name_from_the_link(cast: Cast, dave: Client, start: str) -> None:
    make.workload(cast.vision, "my-own")
    page = dave.get(f"/submit?{start}&name=my-own").content.decode()
    assert 'name="f:name" value="my-own"' in page
    assert "Use my-own-2" in page, "the error offers a free name"
