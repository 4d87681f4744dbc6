// Colours for the keys and comments of YAML: in documents that are shown, and above the text of editors.
(() => {
  "use strict";
  const KEY = /^((?:- +)*)("[^"]*"|'[^']*'|[^\s#"'{}[\],&*!|>%@`-][^#"'{}[\]]*?)(?=:(?:\s|$))/;
  const FLOW_KEY = /([{,]\s*)([\w./-]+)(?=:\s)/g, BLOCK = /(?:^|\s)[|>][+-]?\d?[+-]?\s*$/, LONGEST = 200_000;

  /** Return where the comment of a line begins, or the line's length. Quoted text may contain a #. */
  function commentStart(line) {
    let quote = "";
    for (let at = 0; at < line.length; at += 1) {
      const sign = line[at];
      if (quote) {
        if (sign === "\\" && quote === '"') at += 1;
        else if (sign === quote) quote = "";
      } else if ((sign === '"' || sign === "'") && /[\s[{,:]|^$/.test(line[at - 1] ?? "")) quote = sign;
      else if (sign === "#" && /\s|^$/.test(line[at - 1] ?? "")) return at;
    }
    return line.length;
  }

  function part(text, name) {
    if (!name) return text;
    const element = document.createElement("span");
    element.className = name;
    element.textContent = text;
    return element;
  }

  function flow(text) {
    const parts = [];
    let at = 0;
    for (const match of text.matchAll(FLOW_KEY)) {
      const begin = match.index + match[1].length;
      parts.push(text.slice(at, begin), part(match[2], "yaml-key"));
      at = begin + match[2].length;
    }
    return [...parts, text.slice(at)];
  }

  /** Return text nodes and elements with the same text. */
  function coloured(text) {
    if (text.length > LONGEST) return [text];
    let block = -1; // indentation of the key whose value is a block of text
    return text.split("\n").flatMap((line, number) => {
      const lead = number ? "\n" : "", indent = /^ */.exec(line)[0].length;
      if (block >= 0 && (!line.trim() || indent > block)) return [lead + line];
      block = -1;
      const end = commentStart(line), body = line.slice(indent, end), key = KEY.exec(body);
      if (BLOCK.test(body)) block = indent + (key?.[1].length ?? 0);
      const rest = key ? body.slice(key[0].length) : body;
      return [
        lead + line.slice(0, indent) + (key?.[1] ?? ""),
        ...(key ? [part(key[2], "yaml-key")] : []),
        ...flow(rest),
        ...(end < line.length ? [part(line.slice(end), "yaml-comment")] : []),
      ];
    });
  }

  /** Show coloured text exactly above the text of an editor, which becomes transparent. */
  function follow(box) {
    if (box.dataset.yaml !== undefined) return;
    box.dataset.yaml = "";
    const layer = document.createElement("pre"), text = document.createElement("code");
    layer.className = "editor-colors";
    layer.setAttribute("aria-hidden", "true");
    layer.append(text);
    box.after(layer);
    const move = () => {
      text.style.transform = `translate(${-box.scrollLeft}px, ${-box.scrollTop}px)`;
      layer.classList.toggle("continues", box.scrollTop + box.clientHeight < box.scrollHeight - 2);
      layer.classList.toggle("overflows", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    };
    const paint = () => {
      text.replaceChildren(...coloured(box.value));
      move();
    };
    box.addEventListener("input", paint);
    box.addEventListener("berth:text", paint);
    box.addEventListener("scroll", move, { passive: true });
    new ResizeObserver(move).observe(box);
    paint();
  }

  function all(scope) {
    for (const text of scope.querySelectorAll("pre[data-yaml]")) {
      text.replaceChildren(...coloured(text.textContent));
      text.removeAttribute("data-yaml");
    }
    for (const box of scope.querySelectorAll(".code-editor > textarea.editor-text")) follow(box);
  }
  all(document);
  document.addEventListener("htmx:load", (event) => all(event.target));
})();
