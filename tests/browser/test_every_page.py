"""Browser tests of every page: no errors, no requests to other hosts, little script."""

import pytest

from tests.browser.chromium import NARROW, settled
from tests.browser.conftest import Open
from tests.browser.scene import Scene

MOST_SCRIPT_BYTES = 200_000
PATHS = (
    "/", "/workloads", "/services", "/submit", "/templates", "/templates/vision/nightly/edit",
    "/quotas", "/quotas?pool=train",
    "/quotas/changes",
    "/quotas/projects/vision/train/share", "/node-pools", "/node-pools/train", "/nodes/train-0",
    "/nodes/train-3",
    "/evictions", "/activity", "/access", "/account", "/queue?pool=train",
    "/fair-share?pool=train", "/usage?span=7d", "/notifications",
)  # fmt: skip
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = """[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea')]
    .filter(each => each.checkVisibility())
    .filter(each => !(each.innerText || each.ariaLabel || each.labels?.length || each.title))
    .map(each => each.outerHTML)"""
DUPLICATE_IDS = """[...document.querySelectorAll('[id]')].map(each => each.id)
    .filter((id, index, all) => all.indexOf(id) !== index)"""


def all_paths(scene: Scene) -> list[str]:
    workloads = [
        f"/workloads/{scene.workloads[name].pk}" for name in ("diffusion-xl", "asr-pretrain", "detr-long")
    ]
    assert scene.eviction is not None
    return [*PATHS, *workloads, f"/evictions/{scene.eviction.pk}"]


@pytest.mark.parametrize("name", ["ada", "dave"])
def test_every_page_loads_without_errors_or_requests_to_other_hosts(
    name: str, opened: Open, scene: Scene
) -> None:
    with opened(name) as (page, faults):
        script: dict[str, int] = {}
        page.on("response", lambda r: r.url.endswith(".js") and script.update({r.url: len(r.body())}))
        for path in all_paths(scene):
            script.clear()
            answer = settled(page, path)
            hidden_from_dave = {f"/workloads/{scene.workloads['asr-pretrain'].pk}": 404}
            assert answer.status == (hidden_from_dave.get(path, 200) if name == "dave" else 200), path
            assert sum(script.values()) < MOST_SCRIPT_BYTES, path
            assert "/login" not in page.url
            assert page.locator("main").count() == 1
            assert page.locator("h1").count() == 1, path
            assert page.evaluate(UNNAMED) == [], path
            assert page.evaluate(DUPLICATE_IDS) == [], path
        assert [fault for fault in faults if "404" not in fault and "403" not in fault] == []


VIOLATIONS = """document.addEventListener('securitypolicyviolation', event =>
    console.error(`${event.violatedDirective} forbids ${event.blockedURI} ${event.sample} on ${location}`))"""


@pytest.mark.timeout(600)
def test_admin_site_works_under_its_content_security_policy(opened: Open, scene: Scene) -> None:
    assert scene.eviction is not None
    with opened("ada") as (page, faults):
        page.add_init_script(VIOLATIONS)
        page.goto("/admin/", wait_until="networkidle")
        linked = page.evaluate("[...document.querySelectorAll('#nav-sidebar a')].map(each => each.pathname)")
        lists = sorted({path for path in linked if path.count("/") == 4})
        assert len(lists) > 20
        changes = [f"/admin/scheduler/eviction/{scene.eviction.pk}/change/", "/admin/auth/user/add/",
                   "/admin/projects/quota/add/"]  # fmt: skip
        for path in (*lists, *changes):
            answer = page.goto(path)
            assert answer is not None
            assert answer.status in (200, 403), path  # some models cannot be added by hand
            assert "/login" not in page.url
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self' 'unsafe-eval';" in policy
            assert page.evaluate("window.Alpine?.version"), path
        assert [fault for fault in faults if "403" not in fault] == []


def test_inline_scripts_do_not_run_in_the_admin_site(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/admin/projects/workload/", wait_until="networkidle")
        page.evaluate("document.body.insertAdjacentHTML('beforeend', "
                      "`<img src=/static/none.png onerror='window.ran = true'>`)")  # fmt: skip
        page.evaluate("document.body.append(Object.assign(document.createElement('script'), "
                      "{textContent: 'window.ran = true'}))")  # fmt: skip
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.ran") is None
        assert any("violates the following Content Security Policy" in fault for fault in faults)


def test_api_page_works_under_its_content_security_policy(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.add_init_script(VIOLATIONS)
        answer = page.goto("/api/v1/docs", wait_until="networkidle")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy
        page.locator('[data-path="/api/v1/audit"]').click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        page.locator(".live-responses-table .response-col_status", has_text="200").wait_for()
        assert faults == []


def test_menu_opens_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/")
        assert not page.get_by_role("link", name="Quotas").is_visible()
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Quotas").click()
        page.wait_for_url("**/quotas")
        assert faults == []


def test_times_are_in_the_users_time_zone(opened: Open, scene: Scene) -> None:
    with opened("ada", timezone_id="Asia/Tokyo") as (page, _):
        page.goto(all_paths(scene)[-1])
        shown = page.locator("time[data-style=full]").first
        moment = shown.get_attribute("datetime")
        expected = page.evaluate(
            "m => new Date(m).toLocaleString('en-GB', {timeZone: 'Asia/Tokyo', hour: '2-digit'})", moment
        )
        assert expected in shown.inner_text()


def test_theme_follows_the_system_until_it_is_chosen(opened: Open) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened("ada", color_scheme="dark") as (page, faults):
        page.goto("/workloads")
        dark = page.evaluate(background)
        page.get_by_role("button", name="Switch between light and dark").click()
        light = page.evaluate(background)
        assert dark != light
        page.reload()
        assert page.evaluate(background) == light, "the choice survives a reload"
        assert faults == []


def test_first_tab_stop_skips_to_the_content(opened: Open) -> None:
    with opened("ada") as (page, _):
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")
