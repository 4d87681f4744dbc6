"""The pages that browser tests visit, and layout checks for every page."""

from pathlib import Path

from playwright.sync_api import Page

from tests.browser.data.scene import Scene

PATHS = (
    "/", "/workloads", "/services", "/submit", "/templates", "/templates/vision/nightly/edit",
    "/schedules", "/schedules/vision/nightly", "/schedules/vision/weekly",
    "/quotas", "/quotas?pool=train",
    "/quotas/changes",
    "/quotas/projects/vision/train/share", "/node-pools", "/node-pools/train", "/nodes/train-0",
    "/node-pools/train?tab=capacity", "/node-pools/train?tab=history",
    "/nodes/train-3",
    "/decisions", "/decisions/803", "/evictions", "/activity", "/access", "/access/tokens",
    "/secrets", "/account", "/queue", "/queue?pool=train",
    "/fair-share?pool=train", "/usage?span=7d", "/notifications",
)  # fmt: skip
# One page of each kind, which represents the others in `make test`.
SAMPLE = ("/workloads", "/submit", "/quotas?pool=train", "/node-pools/train")
FORMS = (
    "/notifications/new", "/budgets/new", "/departments/new", "/departments/research/new-project",
    "/projects/vision/change", "/access/grant", "/access/users/new", "/access/tokens/new",
    "/workloads/views/new", "/quotas/projects/vision/train", "/templates/vision/new", "/node-pools/new",
    "/node-pools/train/settings", "/node-pools/train/scale", "/secrets/new/value", "/secrets/new/registry",
    "/schedules/new", "/schedules/vision/weekly/edit", "/schedules/vision/weekly/resume",
)  # fmt: skip
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = """[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea')]
    .filter(each => each.checkVisibility() && each.ariaHidden !== 'true')
    .filter(each => !(each.innerText || each.ariaLabel || each.labels?.length || each.title))
    .map(each => each.outerHTML)"""
DUPLICATE_IDS = """[...document.querySelectorAll('[id]')].map(each => each.id)
    .filter((id, index, all) => all.indexOf(id) !== index)"""
LAYOUT_FAULTS = (Path(__file__).parent / "layout.js").read_text()
UNFOLD = """summary => new Promise(done => {
  const details = summary.parentElement;
  details.addEventListener('toggle', () => requestAnimationFrame(() => done(true)), { once: true });
  details.open = true;
})"""


def all_paths(scene: Scene) -> list[str]:
    workloads = [
        f"/workloads/{scene.workloads[name].pk}" for name in ("diffusion-xl", "policy-sweep", "detr-long")
    ]
    workloads += [
        f"{workloads[0]}/{tab}" for tab in ("logs", "terminal", "metrics", "outputs", "resources", "spec")
    ]
    workloads += [f"{workloads[2]}/timeline", f"{workloads[1]}/resources"]
    assert scene.eviction is not None
    assert scene.array is not None
    array = f"/arrays/{scene.array.pk}"
    arrays = [array, f"{array}/spec", f"{array}/cancel", f"{array}/retry", f"{array}/delete"]
    user = f"/access/users/{scene.people['dave'].pk}"
    return [*PATHS, *workloads, f"{workloads[1]}/edit", *arrays, user, f"/evictions/{scene.eviction.pk}"]


def sampled_paths(scene: Scene) -> list[str]:
    return [*SAMPLE, f"/workloads/{scene.workloads['diffusion-xl'].pk}"]


def layout_faults(page: Page) -> list[str]:
    """Return the page's layout faults: as loaded, then with each menu and collapsed section open."""
    faults: list[str] = page.evaluate(LAYOUT_FAULTS)
    if page.evaluate(OVERFLOW) > 0:
        faults.append("the page scrolls sideways")
    summaries = page.locator("details > summary:visible")
    for number in range(summaries.count()):
        folded = summaries.nth(number)
        if folded.evaluate("each => each.parentElement.open"):
            continue
        folded.evaluate(UNFOLD)
        name = folded.inner_text()
        faults += [
            f"with {name!r} open: {fault}" for fault in page.evaluate(LAYOUT_FAULTS) if fault not in faults
        ]
        if page.evaluate(OVERFLOW) > 0:
            faults.append(f"with {name!r} open the page scrolls sideways")
        folded.evaluate("each => { each.parentElement.open = false; }")
    return faults
