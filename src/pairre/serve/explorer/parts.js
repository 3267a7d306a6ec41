// Pieces of pages: what stands there while, or instead of, an answer; controls, lists, sections.
import { ApiError, pause } from "./api.js";
import { $, draw, make, tag } from "./charts.js";
import { clipped, count } from "./names.js";

// --- the state of a page ---

export function announce(text) {
  // Read out by a screen reader; said again even where it is the same text.
  $("status").textContent = "";
  requestAnimationFrame(() => {
    $("status").textContent = text;
  });
}
export function skeleton(lines = 4, label = "Loading") {
  const rows = Array.from({ length: lines }, (_, i) => make("div", { className: `bone bone-${i % 3}` }));
  const node = tag("div.skeleton", tag("span.hidden-text", label), ...rows);
  node.setAttribute("aria-busy", "true");
  return node;
}
export const empty = (text, ...more) => tag("p.empty", text, ...more);

export function failure(error, { again, suggest } = {}) {
  // What went wrong, what the server suggests instead, and a way to try again.
  if (!(error instanceof ApiError)) console.error(error); // a bug of this page
  const text = clipped(error.message, 400);
  const box = tag("div.notice", tag("p", text.charAt(0).toUpperCase() + text.slice(1)));
  box.setAttribute("role", "alert");
  if (suggest && error.suggestions?.length)
    box.append(tag("p.suggested", "Did you mean ", ...listed(error.suggestions.slice(0, 5).map(suggest)), "?"));
  if (again && (error.status === 0 || error.status >= 429)) box.append(button("Try again", again));
  return box;
}

function listed(nodes) {
  // Nodes as an enumeration: a, b or c.
  return nodes.flatMap((node, i) => [i === 0 ? "" : i === nodes.length - 1 ? " or " : ", ", node]);
}

export function soon(promise) {
  // Waits for something, but not for long: a page is there when its frame is.
  return Promise.race([promise.catch(() => null), pause(0.15)]);
}

// --- controls ---

export const to = (href, text, className = "") => make("a", { href, className }, text);
export function button(text, onclick, properties = {}) {
  return make("button", { type: "button", className: "button", textContent: text, onclick, ...properties });
}
export function copyLink() {
  // A button that copies the address of the page.
  const node = button(
    "Copy link",
    async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        node.textContent = "Copied";
        announce("The link to this page is copied.");
      } catch {
        node.textContent = "Copy it from the address bar";
      }
      setTimeout(() => {
        node.textContent = "Copy link";
      }, 2000);
    },
    { className: "button quiet" },
  );
  return node;
}
export function more(rows, shown, what, onopen = () => {}) {
  // The first rows of a list and a button that shows the rest, and then calls a function.
  if (rows.length <= shown + 2) return rows;
  const rest = rows.slice(shown);
  for (const row of rest) row.hidden = true;
  const opener = make("button", {
    type: "button",
    className: "link more",
    textContent: `Show ${count(rest.length, `more ${what}`, `more ${what}s`)}`,
    onclick: () => {
      for (const row of rest) row.hidden = false;
      (rest[0].querySelector("a, button") ?? rest[0]).focus();
      opener.closest("li")?.remove() ?? opener.remove();
      onopen();
    },
  });
  return [...rows, make(rows[0].tagName === "LI" ? "li" : "div", { className: "more-row" }, opener)];
}
export function heading(text, level = 2, ...beside) {
  const title = make(`h${level}`, {}, text);
  return beside.length ? tag("div.heading", title, ...beside) : title;
}
export function section(title, ...children) {
  // A landmark that its heading names.
  const id = `part-${section.next++}`;
  const head = make("h2", { id, textContent: title });
  const node = tag("section", head, ...children);
  node.setAttribute("aria-labelledby", id);
  return node;
}
section.next = 0;

export function scrolling(label, ...nodes) {
  // A wide table: on a narrow screen it scrolls by itself, also by keyboard.
  return make("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: label }, ...nodes);
}

let icons = null;
export function icon(which) {
  // Line drawings of 24 by 24, painted in the colour of the text.
  icons ??= {
    sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
    moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z",
    search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4",
  };
  return draw("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, draw("path", { d: icons[which] }));
}
