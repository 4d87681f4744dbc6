"""Take screenshots of every page for the documentation: wide and narrow, with and without data.

python -m tests.browser.screenshots [FOLDER] [--only PART-OF-A-NAME ...]
"""

import argparse
import base64
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Browser, Locator, Page

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "platform"))

from berth.db.embedded.cluster import EmbeddedCluster  # noqa: E402
from berth.db.embedded.cluster import run_server as database  # noqa: E402

VIEWPORTS_AND_THEMES: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 360, "height": 780}, "color_scheme": "light", "has_touch": True},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
}
DARK = ("overview",)  # pages with a screenshot in the dark theme
QUALITY = 0.5  # WebP quality; all pages together take about 5 MB
# Images are converted in Chromium, so that the tests need no image library.
TO_WEBP = """async ([png, quality]) => {
  const image = new Image();
  image.src = 'data:image/png;base64,' + png;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL('image/webp', quality).split(',')[1];
}"""
EMPTY = (
    "overview", "workloads", "quotas", "node-pools", "evictions", "queue", "fair-share",
    "decisions", "usage", "access", "secrets", "notifications", "services", "templates",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART-OF-A-NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-shots-") as place:
        cluster = EmbeddedCluster(Path(place) / "postgres")
        with database(cluster, log=Path(place) / "postgres.log"):
            os.environ |= {
                "DATABASE_URL": cluster.url(),
                "BERTH_HOME": place,
                "DJANGO_SETTINGS_MODULE": "berth.server.settings",
            }
            take_screenshots(cluster.url(), Path(place), options.folder, options.only)


def take_screenshots(database_url: str, home: Path, folder: Path, only: list[str]) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    from tests.browser.data.inference_service import create_service
    from tests.browser.data.pools.fleet import create_fleet
    from tests.browser.data.scene import busy, people_only
    from tests.browser.data.workloads.long_log import write_failed_log, write_log
    from tests.browser.driver.chromium import chromium
    from tests.browser.driver.site import serving
    from tests.support.present import present

    # Playwright runs an event loop on this thread. Rows are created only between calls to Playwright.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    call_command("migrate", verbosity=0)
    folder.mkdir(parents=True, exist_ok=True)
    with serving(database_url, home) as address, chromium() as browser:
        scene = people_only()
        for name in EMPTY:
            shoot(browser, address, scene.people["ada"], folder, f"{name}-empty", PATHS[name]({}), only)
        call_command("flush", verbosity=0, interactive=False)
        scene = busy()
        names: dict[str, object] = {key: workload.pk for key, workload in scene.workloads.items()}
        names |= {"user": scene.people["dave"].pk, "cycle": 803, "service": create_service(scene).pk}
        names |= {"eviction": present(scene.eviction).pk, "array": present(scene.array).pk}
        running = scene.workloads["diffusion-xl"]
        write_log(running, home)
        evicted = scene.workloads["detr-long"]
        write_log(evicted, home, steps=850, until=present(scene.eviction).at)
        write_failed_log(scene.workloads["vit-large-lr3"], home)
        for task in present(scene.array).tasks.filter(phase="failed"):
            write_failed_log(task, home)
        for name, path in PATHS.items():
            shoot(browser, address, scene.people["ada"], folder, name, path(names), only)
        shoot(browser, address, None, folder, "login", "/login", only)
        create_fleet(scene.projects["vision"])
        shoot(browser, address, scene.people["ada"], folder, "node-pool-large", "/node-pools/fleet", only)
        shoot(
            browser,
            address,
            scene.people["ada"],
            folder,
            "workload-log",
            f"/workloads/{running.pk}/logs",
            only,
        )


def shoot(
    browser: Browser, address: str, user: "User | None", folder: Path, name: str, path: str, only: list[str]
) -> None:
    from tests.browser.driver.chromium import reader

    for look, options in VIEWPORTS_AND_THEMES.items():
        if not any(part in f"{name}-{look}" for part in only) or (look == "dark" and name not in DARK):
            continue
        refresh_data()
        with reader(browser, address, user, **options) as (page, faults):
            page.goto(path, wait_until="load")
            for step in STEPS.get(name, ()):
                step(page)
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(350)
            png = page.screenshot(full_page=True)
        (folder / f"{name}-{look}.webp").write_bytes(_webp(browser, png))
        for fault in faults:
            print(f"{name}-{look}: {fault}")


def refresh_data() -> None:
    """End the sessions of earlier screenshots, and update the times that a running scheduler would update."""
    from django.contrib.sessions.models import Session
    from django.utils import timezone

    from pools.models import NodePool

    Session.objects.all().delete()
    NodePool.objects.exclude(ticked_at=None).update(ticked_at=timezone.now())


def _webp(browser: Browser, png: bytes) -> bytes:
    page = browser.new_page()
    try:
        encoded = page.evaluate(TO_WEBP, [base64.b64encode(png).decode(), QUALITY])
    finally:
        page.close()
    return base64.b64decode(encoded)


def _edit_quota(page: Page) -> None:
    page.get_by_label("Actions for vision").click()
    page.get_by_role("link", name="Edit the quota for vision").click()
    page.locator("#quota_gpu").fill("40")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector(".error")


def _preview_grid(page: Page) -> None:
    for name, keys in (("vision", "12"), ("speech", "14")):
        _quota_cell(page, name).click()
        page.keyboard.type(keys)
        page.keyboard.press("Enter")
    _quota_cell(page, "robotics").click()
    page.keyboard.press("Delete")
    page.get_by_role("button", name="Preview impact").click()
    page.wait_for_selector("#impact-title")


def _quota_cell(page: Page, name: str) -> Locator:
    heads = page.locator("#quota-grid thead [data-field]")
    columns = heads.evaluate_all("all => all.map(th => [th.dataset.pool, th.dataset.field])")
    return page.locator(f"#quota-grid tr[data-name={name}] td").nth(columns.index(["train", "gpu"]))


def _explain_share(page: Page) -> None:
    page.get_by_role("link", name="explain the fair share of vision").click()
    page.wait_for_selector("dialog .steps")


def _open_scale_menu(page: Page) -> None:
    page.locator("#service-scale summary").click()
    page.wait_for_selector("#service-scale .menu-off")  # a scale-out is in progress


def _search_log(page: Page) -> None:
    page.locator("#log-view > summary").click()
    page.get_by_label("Timestamps").check()
    page.get_by_label("Search the log").fill("checkpoint")
    page.keyboard.press("Enter")
    page.wait_for_selector("#log .hit")


def _await_smallest_change(page: Page) -> None:
    page.wait_for_selector("#smallest-change :is(p, li, dd):not(:text('Searching'))")


def _revert_change(page: Page) -> None:
    page.get_by_role("link", name="Revert change").first.click()
    page.wait_for_selector("dialog form")


def _predict(page: Page) -> None:
    page.locator("#document").fill(
        "# the night's run\nname: night-run\nproject: vision\npools: [train]\nkind: elastic\n"
        "command: torchrun train.py\nenv:\n  EPOCHS: '3'\nroles:\n  - name: worker\n    min: 8"
        "        # a gang: starts with these\n    max: 16\n    gpu: 1\n    cpu: 2\n    memory_mib: 8192\n"
        "priority: high\nmax_runtime: 8h\nnotifications:\n  - {to: dave@example.org, on: [failed]}\n"
    )
    page.wait_for_selector("#fields >> text=Notification 1")
    page.wait_for_selector("#make-change", state="attached")


def _new_template(page: Page) -> None:
    page.get_by_role("link", name="Create template").click()
    page.wait_for_selector("#template-name")


def _wrong_password(page: Page) -> None:
    page.get_by_role("link", name="Change password").click()
    page.get_by_label("Current password").fill("not the right one")
    for label in ("New password", "Confirm new password"):
        page.get_by_label(label, exact=True).fill("a better horse battery")
    page.get_by_role("button", name="Change password").click()
    page.wait_for_selector("dialog .error")


def _invalid_document(page: Page) -> None:
    page.locator("#document").fill(
        "name: My Run\nproject: vision\ncommand: ''\nroles:\n  - {min: 4, max: 2, gpu: 1.5}\n"
    )
    page.get_by_role("button", name="Submit workload", exact=True).click()
    page.wait_for_selector(".problems")


STEPS: Mapping[str, tuple[Callable[[Page], None], ...]] = {
    "quota-edit": (_edit_quota,),
    "quota-share": (_explain_share,),
    "quota-grid-preview": (_preview_grid,),
    "quota-revert": (_revert_change,),
    "submit": (_predict,),
    "template-keep": (_new_template,),
    "account-password": (_wrong_password,),
    "submit-faults": (_invalid_document,),
    "service-in": (_open_scale_menu,),
    "workload-log": (_search_log,),
    "workload-edit": (lambda page: page.wait_for_selector("#make-change", state="attached"),),
    "workload-waiting": (_await_smallest_change,),
    "workload-evicted": (_await_smallest_change,),
}
PATHS: Mapping[str, Callable[[Mapping[str, object]], str]] = {
    "overview": lambda _: "/",
    "workloads": lambda _: "/workloads",
    "workload-running": lambda ids: f"/workloads/{ids['diffusion-xl']}",
    "workload-resources": lambda ids: f"/workloads/{ids['diffusion-xl']}/resources",
    "workload-spec": lambda ids: f"/workloads/{ids['diffusion-xl']}/spec",
    "workload-idle": lambda ids: f"/workloads/{ids['embedding-refresh']}",
    "workload-waiting": lambda ids: f"/workloads/{ids['policy-sweep']}",
    "workload-edit": lambda ids: f"/workloads/{ids['policy-sweep']}/edit",
    "workload-evicted": lambda ids: f"/workloads/{ids['detr-long']}",
    "workload-timeline": lambda ids: f"/workloads/{ids['detr-long']}/timeline",
    "array": lambda ids: f"/arrays/{ids['array']}",
    "submit": lambda _: "/submit",
    "submit-faults": lambda _: "/submit",
    "templates": lambda _: "/templates",
    "template": lambda _: "/templates/vision/nightly/edit",
    "template-keep": lambda _: "/templates",
    "quota-grid": lambda _: "/quotas",
    "quota-grid-preview": lambda _: "/quotas",
    "quotas": lambda _: "/quotas?pool=train",
    "quota-edit": lambda _: "/quotas?pool=train",
    "quota-share": lambda _: "/quotas?pool=train",
    "queue": lambda _: "/queue",
    "fair-share": lambda _: "/fair-share?pool=train",
    "secrets": lambda _: "/secrets",
    "notifications": lambda _: "/notifications",
    "usage": lambda _: "/usage?span=7d",
    "quota-changes": lambda _: "/quotas/changes",
    "quota-revert": lambda _: "/quotas/changes",
    "services": lambda _: "/services",
    "service": lambda ids: f"/services/{ids['service']}",
    "service-in": lambda ids: f"/services/{ids['service']}",
    "node-pools": lambda _: "/node-pools",
    "node-pool": lambda _: "/node-pools/train",
    "node-pool-capacity": lambda _: "/node-pools/train?tab=capacity",
    "node-pool-settings": lambda _: "/node-pools/train/settings",
    "node": lambda _: "/nodes/train-0",
    "node-booting": lambda _: "/nodes/train-3",
    "decisions": lambda _: "/decisions",
    "decision": lambda ids: f"/decisions/{ids['cycle']}",
    "evictions": lambda _: "/evictions",
    "eviction": lambda ids: f"/evictions/{ids['eviction']}",
    "activity": lambda _: "/activity",
    "access": lambda _: "/access",
    "access-tokens": lambda _: "/access/tokens",
    "access-user": lambda ids: f"/access/users/{ids['user']}",
    "account": lambda _: "/account",
    "account-password": lambda _: "/account",
    "admin": lambda _: "/admin/",
    "admin-cycle": lambda ids: f"/admin/scheduler/cycle/{ids['cycle']}/change/",
    "admin-evictions": lambda _: "/admin/scheduler/eviction/",
    "admin-eviction": lambda ids: f"/admin/scheduler/eviction/{ids['eviction']}/change/",
}


if __name__ == "__main__":
    main()
