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

  /** Reader of a log. Its lines are `{ runs: [[text, style]], length, replaced, ended }`, and a style is a list of CSS classes. */
  class LogReader {
    #held = ""; // start of an escape sequence
    #isBack = false; // the cursor is at the start of the line, and the next text replaces the line
    #color = "";
    #bold = "";
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
      const shown = text.slice(0, LINE_MOST - line.length).replace(CONTROL, "\ufffd"), style = this.#bold + this.#color;
      if (!shown) return;
      const last = line.runs.at(-1);
      if (last && (last[1] === style || line.runs.length >= RUNS_MOST)) last[0] += shown;
      else line.runs.push([shown, style]);
      line.length += shown.length;
    }

    /** Apply the parameters of a style sequence: the 16 colours of text, bold and reset. */
    #choose(parameters) {
      const codes = parameters.split(";").map(Number);
      for (let place = 0; place < codes.length; place += 1) {
        const code = codes[place];
        if (code === 0) this.#color = this.#bold = "";
        else if (code === 1) this.#bold = "ansi-bold ";
        else if (code === 22) this.#bold = "";
        else if (code === 39) this.#color = "";
        else if (code >= 30 && code <= 37) this.#color = `ansi-${code - 30}`;
        else if (code >= 90 && code <= 97) this.#color = `ansi-${code - 82}`;
        else if ([38, 48, 58].includes(code)) { // this colour is from a larger palette
          const isIndex = codes[place + 1] === 5, index = codes[place + 2];
          if (code === 38) this.#color = isIndex && index < 16 ? `ansi-${index}` : "";
          place += isIndex ? 2 : 4;
        }
      }
    }
  }

  window.berthLog = { LogReader };
})();
