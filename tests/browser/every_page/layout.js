// Faults of the layout of the page as it stands: controls off the screen, labels with one word per line,
// labels over each other. What lies in a box that scrolls sideways can be reached and is no fault.
() => {
  const CONTROLS = "a, button, input:not([type=hidden]), select, textarea, summary, label, legend, .menu";
  const SHORT_TEXTS = "label, legend, summary, button, a.button";
  const HIDDEN = ".visually-hidden, .sr-only, .skip";
  const wide = document.documentElement.clientWidth;
  const faults = [];

  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const name = (each) => {
    const text = (each.innerText || each.ariaLabel || each.name || "").trim().replace(/\s+/g, " ");
    return `${each.tagName.toLowerCase()}.${each.className} ${text.slice(0, 40)}`;
  };

  function shown(each) {
    const box = each.getBoundingClientRect();
    return each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
      && box.width > 0 && box.height > 0 && !each.closest(HIDDEN);
  }

  function scrolls(each) {
    for (let up = each.parentElement; up && up !== document.body; up = up.parentElement) {
      if (/(auto|scroll)/.test(getComputedStyle(up).overflowX) && up.scrollWidth > up.clientWidth) return true;
      if (up.clientWidth <= 1) return true; // heads of a table that is read as a list on a phone
    }
    return false;
  }

  function texts(each) {
    const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode()) {
      const node = walk.currentNode;
      if (node.data.trim() && !node.parentElement.closest(HIDDEN)) found.push(node);
    }
    return found;
  }

  function lines(nodes) {
    const bottoms = nodes.flatMap((node) => {
      const range = document.createRange();
      range.selectNodeContents(node);
      return [...range.getClientRects()].map((box) => Math.round(box.bottom / 8));
    });
    return new Set(bottoms).size;
  }

  for (const each of all(CONTROLS)) {
    const { left, right } = each.getBoundingClientRect();
    const off = left < -0.5 || right > wide + 0.5;
    if (off && !scrolls(each)) faults.push(`off screen: ${name(each)} ${Math.round(left)}..${Math.round(right)}`);
  }
  for (const each of all(SHORT_TEXTS)) {
    const nodes = texts(each);
    const words = nodes.map((node) => node.data).join(" ").trim().split(/\s+/).length;
    // A table head may wrap: its column is as narrow as its numbers.
    if (words > 1 && lines(nodes) >= words && !each.closest("thead")) faults.push(`one word per line: ${name(each)}`);
  }
  const labels = all("label, legend").filter((each) => each.innerText.trim());
  labels.forEach((one, place) => {
    const a = one.getBoundingClientRect();
    for (const two of labels.slice(place + 1)) {
      const b = two.getBoundingClientRect();
      const across = a.left < b.right - 1 && b.left < a.right - 1;
      const down = a.top < b.bottom - 2 && b.top < a.bottom - 2;
      const layered = one.closest(".menu") !== two.closest(".menu"); // an open menu lies over the page
      if (across && down && !layered && !one.contains(two)) faults.push(`overlap: ${name(one)} and ${name(two)}`);
    }
  });
  return faults;
}
