// A document for xterm.js that keeps to the content security policy, which blocks style elements and attributes.
(() => {
  "use strict";

  /** Return an element whose text is a style sheet of the page. Such sheets are allowed, unlike style elements. */
  function sheetElement() {
    const sheet = new CSSStyleSheet(), element = document.createElement("template");
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
      HTMLElement.prototype.remove.call(element);
    };
    return element;
  }

  function createElement(tag) {
    if (tag === "style") return sheetElement();
    const element = document.createElement(tag);
    element.setAttribute = (name, value) => {
      if (name === "style") element.style.cssText = value;
      else HTMLElement.prototype.setAttribute.call(element, name, value);
    };
    return element;
  }

  window.strictDocument = new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return createElement;
      const value = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
})();
