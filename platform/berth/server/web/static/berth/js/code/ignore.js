// Patterns of .gitignore and .berthignore files.
(() => {
  "use strict";
  const escape = (char) => (/[\\^$.*+?()[\]{}|/]/.test(char) ? `\\${char}` : char);

  /** Return the regular expression of a bracket such as [a-z], and the index after it, or null if the bracket is not closed. */
  function bracket(glob, start) {
    let at = start + 1, inner = "";
    const negated = glob[at] === "!" || glob[at] === "^";
    if (negated) at += 1;
    for (let first = true; at < glob.length && (glob[at] !== "]" || first); first = false) {
      const named = glob.startsWith("[:", at) ? glob.indexOf(":]", at) : -1;
      if (named > 0) {
        inner += NAMED[glob.slice(at + 2, named)] ?? "";
        at = named + 2;
        continue;
      }
      if (glob[at] === "\\" && at + 1 < glob.length) at += 1;
      const isRange = glob[at] === "-" && !first && glob[at + 1] !== "]";
      inner += isRange ? "-" : glob[at].replace(/[\\\]^[-]/, "\\$&");
      at += 1;
    }
    if (at >= glob.length) return null;
    return [`(?!/)[${negated ? "^" : ""}${inner}]`, at + 1];
  }

  const NAMED = {
    alnum: "a-zA-Z0-9", alpha: "a-zA-Z", blank: " \\t", digit: "0-9", lower: "a-z", space: "\\s", upper: "A-Z", xdigit: "0-9a-fA-F",
    punct: "!-\\/:-@\\[-`\\{-~",
  };

  /** Return the regular expression of a pattern without slashes at its ends. */
  function expression(glob) {
    let text = "", at = 0;
    while (at < glob.length) {
      const rest = glob.slice(at), atName = at === 0 || glob[at - 1] === "/";
      if (atName && /^\*\*+\//.test(rest)) {
        text += "(?:.*/)?";
        at += rest.indexOf("/") + 1;
      } else if (atName && /^\*\*+$/.test(rest)) {
        text += ".+";
        at = glob.length;
      } else if (rest[0] === "*") {
        text += "[^/]*";
        at += rest.match(/^\*+/)[0].length;
      } else if (rest[0] === "?") {
        text += "[^/]";
        at += 1;
      } else if (rest[0] === "[") {
        const found = bracket(glob, at);
        if (!found) return null;
        text += found[0];
        at = found[1];
      } else {
        if (rest[0] === "\\") at += 1;
        if (at >= glob.length) return null;
        const char = String.fromCodePoint(glob.codePointAt(at));
        text += escape(char);
        at += char.length;
      }
    }
    return text;
  }

  function parseLine(line) {
    let glob = line.replace(/^((?:\\.|[^\\])*?)[ \t]+$/u, "$1");
    if (!glob || glob.startsWith("#")) return null;
    const keeps = glob.startsWith("!");
    if (keeps) glob = glob.slice(1);
    const onlyDirectories = glob.endsWith("/");
    if (onlyDirectories) glob = glob.slice(0, -1);
    const anchored = glob.includes("/");
    if (glob.startsWith("/")) glob = glob.slice(1);
    const text = glob && expression(glob);
    if (!text) return null;
    try {
      return { keeps, onlyDirectories, matches: new RegExp(`^${anchored ? "" : "(?:.*/)?"}${text}$`, "su") };
    } catch { // an invalid bracket, such as [z-a], matches nothing
      return null;
    }
  }

  /** Patterns of one file. The last pattern that matches decides. */
  class IgnoreFile {
    constructor(text) {
      this.rules = text.replace(/^\uFEFF/, "").split(/\r?\n/).map(parseLine).filter(Boolean);
    }

    /** Return true if the path is excluded, false if it is kept, or null if no pattern matches. */
    decide(path, isDirectory) {
      for (const rule of this.rules.toReversed()) {
        if ((isDirectory || !rule.onlyDirectories) && rule.matches.test(path)) return !rule.keeps;
      }
      return null;
    }

    /** Return true if a file or one of its directories is excluded. Patterns of the file itself come first. */
    excludes(path) {
      const parents = [];
      for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) parents.push(path.slice(0, at));
      let excluded = false, byName = false; // byName: true if a pattern has matched the file itself
      for (const rule of this.rules) {
        if (!rule.onlyDirectories && rule.matches.test(path)) [excluded, byName] = [!rule.keeps, true];
        else if (parents.some((parent) => rule.matches.test(parent))) {
          if (!rule.keeps) [excluded, byName] = [true, false];
          else if (!byName) excluded = false;
        }
      }
      return excluded;
    }
  }

  window.berthCode = { ...window.berthCode, IgnoreFile };
})();
