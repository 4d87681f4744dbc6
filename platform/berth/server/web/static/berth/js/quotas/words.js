// Parsing and formatting of quota values, and the boxes for a draft's conflicts and errors.
(() => {
  "use strict";
  const OPEN = ["", "∞", "unlimited", "none", "null"], MOST = { amount: 1e9, whole: 1e12, weight: 1e6, rank: 1000 };
  const ALLOWED = { amount: "a number from 0 in steps of 0.001, such as 8 or 0.5", whole: "a whole number from 0, such as 1024", weight: "a number from 0 to 1,000,000", rank: "a whole number from -1000 to 1000" };
  const NONE = "–", NO_QUOTA = [NONE, "-", "—"], AMBIGUOUS = ["", "none"];
  const YES = ["yes", "true", "1"], NO = ["no", "false", "0"];
  const make = (tag, text, className = "") => Object.assign(document.createElement(tag), { textContent: text, className });

  const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  /** Convert the input to its stored form, or return {fault}. */
  function read(column, raw) {
    const word = raw.trim().toLowerCase(), { kind } = column;
    if (NO_QUOTA.includes(word)) return NONE;
    if (column.adds && AMBIGUOUS.includes(word)) return { fault: `${word ? `“${word}”` : "An empty cell"} is ambiguous. Enter – for no quota, ∞ for unlimited, or a number.` };
    if (kind === "flag") return YES.includes(word) ? "yes" : NO.includes(word) ? "no" : { fault: "Enter yes or no." };
    if (kind === "rank" && (OPEN.includes(word) || word === "own" || word === "inherited")) return "inherited";
    if (kind !== "weight" && kind !== "rank" && OPEN.includes(word)) return "∞";
    const plain = word.replace(/[\s\u00a0]/g, ""), number = Number(/^\d{1,3}(,\d{3})+(\.\d+)?$/.test(plain) ? plain.replaceAll(",", "") : plain);
    const least = kind === "rank" ? -1000 : 0, whole = kind === "rank" || kind === "whole";
    const step = kind === "amount" ? Math.abs(number * 1000 - Math.round(number * 1000)) < 1e-6 : !whole || Number.isInteger(number);
    if (plain === "" || !Number.isFinite(number) || number < least || number > MOST[kind] || !step) {
      const open = kind === "rank" ? ", or inherited" : kind === "weight" ? "" : ", or ∞ for unlimited";
      const problem = raw.trim() ? `“${raw.trim().slice(0, 40)}” is ${number > MOST[kind] ? "too large" : "not valid"}` : "A value is required";
      return { fault: `${problem}. Enter ${number > MOST[kind] ? `at most ${MOST[kind].toLocaleString("en")}` : ALLOWED[kind]}${open}.` };
    }
    return String(number);
  }

  /** Return the value in thousandths or whole units, null if unlimited, or 0 without a quota. */
  const amountOf = (text, column) => (text === "∞" ? null : text === NONE ? 0 : Math.round(Number(text) * column.scale));

  /** Return the current token, which changes when the user signs in again in another tab. */
  const token = () => document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1] ?? JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];

  function button(text, label, press) {
    const made = make("button", text, "button small");
    made.type = "button";
    if (label) made.setAttribute("aria-label", label);
    made.addEventListener("click", press);
    return made;
  }

  function box(tone, ...inner) {
    const outer = make("div", "", `notice ${tone}`), within = make("div", "");
    outer.setAttribute("role", "alert");
    within.append(...inner);
    outer.append(within);
    return outer;
  }

  function differing({ theirs: { by }, seen, typed }) {
    if (typed === NONE) return `${by} changed the quota, and you deleted it`;
    return `${by} ${seen === NONE ? "deleted the quota" : `set ${seen}`}; yours is ${typed}`;
  }

  /** Return a box of conflicts. `decide(cells, mine)` is called for resolved conflicts. */
  function conflictBox(open, decide) {
    const list = make("ul", "", "problems");
    for (const conflict of open) {
      const line = make("li", `${conflict.title}: ${differing(conflict.entry)}. `);
      for (const [word, mine] of [["Keep mine", true], ["Use theirs", false]]) {
        line.append(button(word, `${word}: ${conflict.title}`, () => decide([conflict], mine)), " ");
      }
      list.append(line);
    }
    const all = open.length < 2 ? [] : [["Keep all mine", true], ["Use all theirs", false]].map(([word, mine]) => button(word, "", () => decide(open, mine)));
    return box(
      "warn", make("strong", "Someone else changed the same values."),
      make("p", "Your values are kept. Resolve each conflict; cells you did not edit show the stored value."), list, ...all,
    );
  }

  function faultBox(faults, cellOf, go) {
    const list = make("ul", "", "problems");
    for (const fault of faults) {
      const line = make("li", fault.cell ? `${fault.cell}: ${fault.message}` : fault.message);
      const td = fault.cell ? cellOf(fault) : null;
      if (td) {
        td.setAttribute("aria-invalid", "true");
        td.append(make("span", fault.message, "error"));
        line.append(" ", button("Go to cell", `Go to ${fault.cell}`, () => go(td)));
      }
      list.append(line);
    }
    return box("bad", list);
  }

  window.berthQuotas = { NONE, read, make, many, conflictBox, faultBox, amountOf, token };
})();
