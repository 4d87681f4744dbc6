"""Browser tests for every page: requests, layout, accessibility and tables."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, open_settled
from tests.browser.every_page.pages import FORMS, all_paths, sampled_paths
from tests.browser.every_page.walk import (
    MOST_SCRIPT_BYTES,
    MOST_SCRIPT_BYTES_OF_TERMINALS,
    Visit,
    Walk,
    inspect,
    inspect_dark,
    visit,
)

pytestmark = pytest.mark.timeout(600)  # timeout in seconds; the first test to run visits all sampled pages


@pytest.fixture(scope="session")
def walks() -> list[Walk]:
    return []


@pytest.fixture
def walk(walks: list[Walk], transactional_db: None, request: pytest.FixtureRequest) -> Walk:
    if not walks:
        opened, scene = request.getfixturevalue("opened"), request.getfixturevalue("scene")
        # Without animations, the menu is in its final position as soon as the page is as narrow as a phone.
        with opened("ada", reduced_motion="reduce") as (page, faults):
            pages = [inspect(page, path) for path in sampled_paths(scene)]
        walks.append(Walk(pages, faults))
    return walks[0]


def assert_in_order(visited: Visit, status: int = 200) -> None:
    path = visited.path
    assert visited.status == status, path
    most = MOST_SCRIPT_BYTES_OF_TERMINALS if path.endswith("/terminal") else MOST_SCRIPT_BYTES
    assert 0 < visited.script_bytes < most, path
    assert "/login" not in visited.url, path
    assert visited.mains == 1, path
    assert visited.headings == 1, path
    assert visited.unnamed == [], path
    assert visited.duplicate_ids == [], path


def assert_layout(visits: list[Visit]) -> None:
    faults = [f"{visited.path} {fault}" for visited in visits for fault in visited.layout]
    assert not faults, "\n".join(faults)


def assert_accessible(visits: list[Visit]) -> None:
    faults = [f"{visited.path} {fault}" for visited in visits for fault in visited.violations]
    assert not faults, "\n".join(faults)


def test_sampled_pages_load_without_errors_or_requests_to_other_hosts(walk: Walk) -> None:
    for visited in walk.pages:
        assert_in_order(visited)
    assert walk.faults == []


def test_controls_of_sampled_pages_are_on_screen_and_have_readable_labels(walk: Walk) -> None:
    assert_layout(walk.pages)


def test_sampled_pages_have_no_serious_accessibility_violation(walk: Walk) -> None:
    assert_accessible(walk.pages)


def assert_sortable_and_exportable(visits: list[Visit]) -> None:
    assert {visited.path: visited.tables for visited in visits if visited.tables} == {}


def test_tables_of_sampled_pages_can_be_sorted_and_exported(walk: Walk) -> None:
    assert_sortable_and_exportable(walk.pages)


@pytest.mark.heavy
def test_every_page_loads_without_errors_and_is_accessible(opened: Open, scene: Scene) -> None:
    with opened("ada", reduced_motion="reduce") as (page, faults):
        pages = [inspect(page, path) for path in all_paths(scene)]
        forms = [inspect(page, path) for path in FORMS]
    for visited in pages:
        assert_in_order(visited)
    assert {visited.path for visited in forms if visited.status != 200} == set()
    assert_layout([*pages, *forms])
    assert_accessible(pages)
    assert_sortable_and_exportable(pages)
    assert faults == []


@pytest.mark.heavy
def test_layout_and_contrast_are_correct_in_the_dark_theme(opened: Open, scene: Scene) -> None:
    with opened("ada", reduced_motion="reduce", color_scheme="dark") as (page, _):
        visits = [inspect_dark(page, path) for path in (*all_paths(scene), *FORMS)]
    assert_layout(visits)
    assert_accessible(visits)


@pytest.mark.heavy
def test_every_page_loads_for_a_member_without_errors_or_requests_to_other_hosts(
    opened: Open, scene: Scene
) -> None:
    hidden = f"/workloads/{scene.workloads['policy-sweep'].pk}"
    admins = ("/access/tokens", "/access/users/")
    with opened("dave") as (page, faults):
        for path in all_paths(scene):
            status = 404 if path.startswith(hidden) else 403 if path.startswith(admins) else 200
            assert_in_order(visit(page, path), status)
        assert [fault for fault in faults if "404" not in fault and "403" not in fault] == []


VIOLATIONS = """document.addEventListener('securitypolicyviolation', event =>
    console.error(`${event.violatedDirective} forbids ${event.blockedURI} ${event.sample} on ${location}`))"""


# Lists with actions or date filters, Django's own lists, and forms with Berth's and Django's widgets.
# tests/web/admin_site/test_admin_site.py shows that no page of the admin site has inline scripts.
ADMIN_PAGES = (
    "/admin/projects/workload/", "/admin/scheduler/eviction/", "/admin/auth/user/", "/admin/auth/user/add/",
    "/admin/projects/quota/add/",
)  # fmt: skip


@pytest.mark.heavy
def test_admin_site_works_under_its_content_security_policy(opened: Open, scene: Scene) -> None:
    assert scene.eviction is not None
    with opened("ada") as (page, faults):
        page.add_init_script(VIOLATIONS)
        pages = ("/admin/", *ADMIN_PAGES, f"/admin/scheduler/eviction/{scene.eviction.pk}/change/")
        for path in pages:
            answer = page.goto(path)
            assert answer is not None
            assert answer.status == 200, path
            assert "/login" not in page.url
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self' 'unsafe-eval';" in policy
            assert page.evaluate("window.Alpine?.version"), path
        assert faults == []


# Resolves once the image has failed to load, which is when its inline handler would have run.
INLINE_SCRIPTS = """() => new Promise(done => {
    document.body.insertAdjacentHTML('beforeend', `<img src=/static/none.png onerror='window.ran = true'>`);
    document.body.lastElementChild.addEventListener('error', done);
    document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = true'}));
})"""


def test_content_security_policy_blocks_inline_scripts_in_the_admin_site(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/admin/projects/workload/")
        page.evaluate(INLINE_SCRIPTS)
        assert page.evaluate("window.ran") is None
        assert any("violates the following Content Security Policy" in fault for fault in faults)


@pytest.mark.heavy
def test_api_documentation_works_under_its_content_security_policy(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.add_init_script(VIOLATIONS)
        answer = page.goto("/api/v1/docs")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy
        # The page renders only the operations near its visible part, so the first one is used.
        page.locator('.opblock-get [data-path="/api/v1/arrays"]').click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        page.locator(".live-responses-table .response-col_status", has_text="200").wait_for()
        assert faults == []


def test_navigation_menu_opens_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/")
        assert not page.get_by_role("link", name="Quotas").is_visible()
        page.get_by_role("button", name="Menu", exact=True).click()
        page.get_by_role("button", name="Close menu").click()
        expect(page.get_by_role("link", name="Quotas")).to_be_hidden()
        page.get_by_role("button", name="Menu", exact=True).click()
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


@pytest.mark.heavy
def test_activity_page_groups_changes_by_local_day_on_the_first_visit(opened: Open) -> None:
    # A zone whose date differs from that of UTC.
    zone = "Pacific/Kiritimati" if datetime.now(UTC).hour >= 10 else "Pacific/Pago_Pago"
    with opened("ada", timezone_id=zone) as (page, faults):
        page.goto("/activity")
        moment = page.locator("table.activity time").first.get_attribute("datetime")
        assert moment is not None
        day = datetime.fromisoformat(moment).astimezone(ZoneInfo(zone))
        expect(page.locator("table.activity tr.group").first).to_contain_text(
            f"{day:%A} {day.day} {day:%B %Y}"
        )
        assert faults == []


@pytest.mark.heavy
def test_theme_follows_the_system_until_the_user_chooses_one(opened: Open) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened("ada", color_scheme="dark") as (page, faults):
        page.goto("/workloads")
        dark = page.evaluate(background)
        page.get_by_role("button", name="Switch between light and dark").click()
        light = page.evaluate(background)
        assert dark != light
        page.reload()
        assert page.evaluate(background) == light, "the choice survives a reload"
        page.get_by_role("button", name="Switch between light and dark").click()
        page.goto("/admin/")
        assert page.evaluate(background) == dark, "the admin site follows the choice, with the same ground"
        assert faults == []


@pytest.mark.heavy
def test_first_tab_stop_is_a_skip_link_to_the_content(opened: Open) -> None:
    with opened("ada") as (page, _):
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")
