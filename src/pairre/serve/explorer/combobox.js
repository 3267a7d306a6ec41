// A text field with suggestions: the combobox pattern of ARIA, with a list that the arrow keys walk through.
import { get, runPath } from "./api.js";
import { make, tag } from "./charts.js";
import { clipped, count, name } from "./names.js";
import { announce } from "./parts.js";

const WAIT = 70; // milliseconds after a key, before the server is asked
let next = 0;

export function combobox({
  label,
  run,
  kind = "any",
  placeholder = "",
  chosen = null,
  hideLabel = false,
  onchoose = () => {},
  onclear = () => {},
}) {
  // Returns the node and its state: `ref` is what was chosen, or null while the text is only a text.
  const id = `combobox-${next++}`;
  const input = make("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    autocomplete: "off",
    spellcheck: false,
    dir: "auto",
    maxLength: 6000,
  });
  const list = make("ul", {
    id: `${id}-list`,
    className: "suggestions",
    hidden: true,
    role: "listbox",
    ariaLabel: `Suggestions: ${label}`,
  });
  const told = make("div", { className: "suggestions nothing", hidden: true });
  const attributes = {
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    autocapitalize: "off",
  };
  for (const [key, value] of Object.entries(attributes)) input.setAttribute(key, value);
  const caption = make("label", { htmlFor: id, textContent: label, className: hideLabel ? "hidden-text" : "caption" });
  const node = tag("div.combobox", caption, tag("div.field", input, list, told));
  const state = { node, input, ref: null, text: () => input.value.trim(), set, focus: () => input.focus() };
  let options = [];
  let at = -1;
  let timer = 0;
  let asking = null;

  function set(ref) {
    state.ref = ref;
    input.value = ref ? ref.shown : "";
    input.title = ref && ref.shown.length > 30 ? clipped(ref.shown, 600) : "";
  }
  function close() {
    clearTimeout(timer);
    asking?.abort();
    list.hidden = told.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function move(to) {
    list.children[at]?.setAttribute("aria-selected", "false");
    at = to;
    const option = list.children[at];
    if (!option) return input.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    return input.setAttribute("aria-activedescendant", option.id);
  }
  function choose(found) {
    set(found.ref);
    close();
    onchoose(found, state);
  }
  function show(found) {
    options = found;
    at = -1;
    list.replaceChildren(...found.map((one, i) => option(one, i)));
    list.hidden = !found.length;
    told.hidden = Boolean(found.length);
    told.textContent = "Nothing has a name like that.";
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    input.removeAttribute("aria-activedescendant");
    announce(found.length ? count(found.length, "suggestion") : "No suggestions");
  }
  function option(found, i) {
    const about = [found.kind === "relation" ? "relation" : found.ref.type, count(found.num_facts, "fact")].filter(
      Boolean,
    );
    const item = make(
      "li",
      { id: `${id}-${i}`, role: "option", onclick: () => choose(found), onpointermove: () => at !== i && move(i) },
      tag("span.option-name", name(found.ref, 70)),
      tag("span.soft", about.map((text) => clipped(text, 28)).join(" · ")),
    );
    item.setAttribute("aria-selected", "false");
    return item;
  }
  async function ask() {
    asking?.abort();
    const q = state.text();
    if (!q) return close();
    asking = new AbortController();
    try {
      const { results } = await get(
        runPath(run(), "search"),
        { q: q.slice(0, 200), kind, limit: 8 },
        { signal: asking.signal },
      );
      if (document.activeElement === input) show(results);
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      close();
      told.hidden = false;
      told.textContent = error.message;
    }
    return undefined;
  }
  async function enter() {
    if (at < 0 && state.text() && !state.ref) {
      clearTimeout(timer);
      await ask(); // what was typed last may not have been asked yet
    }
    const found = options[Math.max(at, 0)];
    if (found && state.text() && !state.ref) choose(found);
    else if (state.ref) onchoose({ ref: state.ref, kind }, state);
  }
  input.addEventListener("input", () => {
    if (state.ref) onclear(state);
    state.ref = null;
    input.title = "";
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  });
  input.addEventListener("keydown", (event) => {
    const opened = !list.hidden;
    const last = options.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!opened) ask();
      else if (event.key === "ArrowDown") move(at >= last ? 0 : at + 1);
      else move(at <= 0 ? last : at - 1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      enter();
    } else if (event.key === "Escape") {
      if (opened || !told.hidden) close();
      else if (input.value) {
        set(null);
        onclear(state);
      }
    } else if (event.key === "Tab") close();
  });
  input.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
  if (chosen) set(chosen);
  return state;
}
