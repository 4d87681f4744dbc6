// Text of logs as lines of a terminal, from pieces that may be cut anywhere.
(() => {
  "use strict";
  const LINE_MOST = 65536, RUNS_MOST = 1000; // maximum characters and style changes per line
  const TEXT = /[^\u001b\r\n]+/y;
  const CSI = /\u001b\[([0-?]{0,200}[ -/]{0,8})([@-~])/y;
  const OTHER = /\u001b[\]PX^_][^\u0007\u001b\n]{0,4000}(?:\u0007|\u001b\\)?|\u001b\[|\u001b[ -/]{0,8}[0-~]?/y; // escape sequences for titles, links and device strings
  const BEGUN = /\u001b(?:\[[0-?]{0,200}[ -/]{0,8}|[\]PX^_][^\u0007\u001b\n]{0,4000}\u001b?|[ -/]{0,8})$/y; // escape sequence that continues in the next piece
  // The pattern includes bidirectional control characters, which could disguise a line.
  const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

  // The 16 colors as in the style sheet. Other colors are shown as the most similar of these, which are readable.
  const PALETTE = ["8b98a5", "f5827a", "5ccb8f", "e4ac4e", "7aa7f7", "cf8ee0", "4cc4c9", "d5dde5", "97a3af", "ff9d94", "86e0ae", "ffd866", "9fc2ff", "e3b1ef", "7ad8db", "ffffff"]
    .map((color) => [0, 2, 4].map((at) => parseInt(color.slice(at, at + 2), 16)));
  const GREY = 30, BLACK = 40; // greatest difference of a grey's components, and greatest component of a color shown as black
  const LEVELS = [0, 95, 135, 175, 215, 255]; // components of the palette's color cube
  const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck" };
  const ENDED = { 22: [1, 2], 23: [3], 24: [4], 27: [7], 29: [9] };

  /** Return the most similar of the 16 colors. Dark colors count as bright ones of the same hue. */
  function nearest(color) {
    const brightest = Math.max(...color), isGrey = brightest - Math.min(...color) < GREY;
    if (brightest < BLACK) return 0;
    const bright = isGrey ? color : color.map((each) => each * 255 / brightest);
    const distances = PALETTE.map((shown) => shown.reduce((sum, each, at) => sum + (each - bright[at]) ** 2, 0));
    return distances.indexOf(Math.min(...distances));
  }

  /** Return the components of an index from 16 to 255 of the terminal palette. */
  function indexed(index) {
    if (index >= 232) return Array(3).fill(8 + 10 * (index - 232));
    const place = index - 16;
    return [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((level) => LEVELS[level]);
  }

  /** Reader of a log. Its lines are `{ runs: [[text, style]], length, replaced, ended }`, and a style is a list of CSS classes. */
  class LogReader {
    #held = ""; // start of an escape sequence
    #isBack = false; // the cursor is at the start of the line, and the next text replaces the line
    #color = "";
    #ground = "";
    #flags = new Set(); // codes of bold, italic and so on
    #style = "";
    line = null; // unfinished line

    /** Read a piece of text. Return the lines that it changed, first the line that it continued, if any. */
    read(piece, isLast = false) {
      const text = this.#held + piece, changed = this.line ? [this.line] : [];
      let at = 0, begun = null;
      const match = (pattern) => {
        pattern.lastIndex = at;
        const found = pattern.exec(text);
        if (found) at = pattern.lastIndex;
        return found;
      };
      const open = () => {
        if (!this.line) changed.push(this.line = { runs: [], length: 0, replaced: false, ended: false });
        return this.line;
      };
      this.#held = "";
      while (at < text.length) {
        if (text[at] === "\n") {
          open().ended = true;
          this.line = null;
          this.#isBack = false;
          at += 1;
        } else if (text[at] === "\r") {
          this.#isBack = true;
          at += 1;
        } else if (text[at] !== "\u001b") this.#write(open(), match(TEXT)[0]);
        else if (!isLast && (begun = match(BEGUN))) [this.#held] = begun;
        else {
          const sequence = match(CSI) ?? match(OTHER);
          if (sequence[2] === "m") this.#choose(sequence[1]);
        }
      }
      return changed;
    }

    get isBack() { return this.#isBack; }

    #write(line, text) {
      if (this.#isBack) Object.assign(line, { runs: [], length: 0, replaced: true });
      this.#isBack = false;
      const shown = text.slice(0, LINE_MOST - line.length).replace(CONTROL, "\ufffd"), style = this.#style;
      if (!shown) return;
      const last = line.runs.at(-1);
      if (last && (last[1] === style || line.runs.length >= RUNS_MOST)) last[0] += shown;
      else line.runs.push([shown, style]);
      line.length += shown.length;
    }

    /** Apply the parameters of a style sequence: colors, backgrounds, bold and similar styles, and reset. */
    #choose(parameters) {
      const codes = parameters.split(";").map(Number);
      for (let place = 0; place < codes.length; place += 1) {
        const code = codes[place];
        if (code === 0) { this.#color = this.#ground = ""; this.#flags.clear(); }
        else if (FLAGS[code]) this.#flags.add(code);
        else if (ENDED[code]) for (const each of ENDED[code]) this.#flags.delete(each);
        else if (code === 39) this.#color = "";
        else if (code === 49) this.#ground = "";
        else if (code >= 30 && code <= 37) this.#color = `ansi-${code - 30}`;
        else if (code >= 90 && code <= 97) this.#color = `ansi-${code - 82}`;
        else if (code >= 40 && code <= 47) this.#ground = `ansi-on-${code - 40} `;
        else if (code >= 100 && code <= 107) this.#ground = `ansi-on-${code - 92} `;
        else if ([38, 48, 58].includes(code)) { // this color is from a larger palette
          const isIndex = codes[place + 1] === 5, index = codes[place + 2] & 255;
          const color = isIndex ? (index < 16 ? index : nearest(indexed(index))) : nearest([2, 3, 4].map((next) => codes[place + next] & 255));
          if (code === 38) this.#color = `ansi-${color}`;
          if (code === 48) this.#ground = `ansi-on-${color} `;
          place += isIndex ? 2 : 4;
        }
      }
      this.#style = [...this.#flags].sort().map((flag) => `ansi-${FLAGS[flag]} `).join("") + this.#ground + this.#color;
    }
  }

  window.berthLog = { LogReader };
})();
