// The frame around all pages: which page the address names, the search field, the run, the theme, focus and title.
import { ApiError, get, useToken } from "./api.js";
import { $, make, tag } from "./charts.js";
import { combobox } from "./combobox.js";
import { landing } from "./pages/landing.js";
import { clipped } from "./names.js";
import { button, failure, icon, skeleton, to } from "./parts.js";
import { link, route, setDefaultRun } from "./route.js";

const PAGES = {
  "": async () => landing,
  entity: async () => (await import("./pages/entity.js")).entityPage,
  relation: async () => (await import("./pages/relation.js")).relationPage,
  ask: async () => (await import("./pages/ask.js")).askPage,
  review: async () => (await import("./pages/review.js")).reviewPage,
};
let served = null;
let leaving = null;
let shown = 0;
let finder = null;
const scrolled = new Map();

// --- pages ---

async function show({ focus = true, scroll = 0 } = {}) {
  leaving?.abort();
  leaving = new AbortController();
  const { page, parameters, run } = route();
  const { signal } = leaving;
  const view = tag("div.view");
  const main = $("main");
  for (const node of document.querySelectorAll("nav [data-page]")) {
    if (node.dataset.page === page) node.setAttribute("aria-current", "page");
    else node.removeAttribute("aria-current");
    node.href = link(node.dataset.page);
  }
  const slow = setTimeout(() => {
    if (!view.hasChildNodes()) view.append(skeleton(6));
  }, 120);
  main.replaceChildren(view);
  finder?.set(null);
  try {
    const found = served.runs.find((one) => one.name === run);
    if (!found)
      throw new ApiError(`There is no run ${run} here.`, {
        status: 404,
        suggestions: served.runs.map((one) => one.name),
      });
    if (!(page in PAGES)) throw new ApiError("There is no page at this address.", { status: 404 });
    const fill = await PAGES[page]();
    if (signal.aborted) return;
    const title = await fill(view, { parameters, run, signal, about: found });
    if (signal.aborted) return;
    document.title = `${clipped(title, 80)} – ${clipped(found.graph, 40)} – pairre`;
    arrive(main, { focus, scroll });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error.status === 401) return askForToken(view, error);
    view.replaceChildren(
      tag("h1", error.status === 404 ? "Not found" : "This did not work"),
      failure(error, { again: () => show(), suggest: suggestion(page, parameters) }),
      error.status === 404 ? tag("p.soft", "The field at the top (key /) finds what there is by a part of its name.") : "",
      tag(
        "p",
        to(link("", {}, served.runs.some(({ name }) => name === run) ? run : served.default), "To the overview"),
      ),
    );
    document.title = "Not found – pairre";
    arrive(main, { focus, scroll: 0 });
  } finally {
    clearTimeout(slow);
  }
}
function arrive(main, { focus, scroll }) {
  const heading = main.querySelector("[data-arrive]") ?? main.querySelector("h1");
  if (focus && heading && !main.contains(document.activeElement)) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  window.scrollTo({ top: scroll, behavior: "instant" });
}
function suggestion(page, parameters) {
  // A name to try instead, as a link to the same page of it.
  return (text) => {
    const known = served.runs.some((one) => one.name === text);
    const href = known ? link("", {}, text) : link(page, { ...Object.fromEntries(parameters), name: text });
    return to(href, clipped(text, 60));
  };
}
function askForToken(view, error) {
  const input = make("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const form = tag(
    "form.token",
    tag("h1", "This server asks for a token"),
    tag("p.soft", `It is the one that \`pairre serve\` was started with. ${error.message}`),
    make("label", { htmlFor: "token", className: "caption", textContent: "Token" }),
    input,
    tag("button.button.strong", "Open"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(input.value.trim());
    start();
  });
  view.replaceChildren(form);
  input.focus();
}

// --- the frame ---

function theme() {
  const dark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const paint = () => {
    const name = dark() ? "Use the light theme" : "Use the dark theme";
    $("theme").replaceChildren(icon(dark() ? "sun" : "moon"));
    $("theme").title = $("theme").ariaLabel = name;
  };
  $("theme").onclick = () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("pairre-theme", chosen);
    } catch {
      /* it then holds for this page */
    }
    paint();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
}
function search() {
  finder = combobox({
    label: "Find an entity or a relation",
    hideLabel: true,
    placeholder: "Find an entity or a relation",
    run: () => route().run,
    onchoose: ({ ref, kind }, field) => {
      field.set(null);
      field.input.blur();
      location.hash = link(kind === "relation" ? "relation" : "entity", { name: ref.name });
    },
  });
  $("finder").replaceChildren(icon("search"), finder.node);
  document.addEventListener("keydown", (event) => {
    if (
      event.key !== "/" ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.target.closest("input, select, textarea")
    )
      return;
    event.preventDefault();
    finder.focus();
  });
}
function runChoice() {
  const box = $("run-choice");
  box.hidden = served.runs.length < 2;
  const select = make(
    "select",
    {
      ariaLabel: "Run",
      onchange: () => {
        location.hash = link("", {}, select.value);
      },
    },
    ...served.runs.map(({ name, graph }) =>
      make("option", { value: name, textContent: clipped(name === graph ? name : `${name} (${graph})`, 40) }),
    ),
  );
  box.replaceChildren(select);
  const follow = () => {
    select.value = route().run;
  };
  addEventListener("hashchange", follow);
  follow();
}
function remember() {
  // Where every page was scrolled to, so that going back arrives there; a link that is followed begins at the top.
  history.scrollRestoration = "manual";
  let current = history.state?.page ?? ++shown;
  shown = Math.max(shown, current);
  history.replaceState({ page: current }, "");
  addEventListener("scrollend", () => scrolled.set(current, scrollY));
  addEventListener("popstate", (event) => {
    const known = event.state?.page;
    if (!served) return;
    if (!location.hash.startsWith("#/") && location.hash) return;
    current = known ?? ++shown;
    if (!known) history.replaceState({ page: current }, "");
    show({ scroll: known ? (scrolled.get(known) ?? 0) : 0 });
  });
}
async function start() {
  try {
    served = await get("runs", {}, { keep: false });
  } catch (error) {
    const view = tag("div.view");
    $("main").replaceChildren(view);
    if (error.status === 401) return askForToken(view, error);
    view.append(tag("h1", "This did not work"), failure(error), button("Try again", start));
    return undefined;
  }
  setDefaultRun(served.default);
  if (!finder) search();
  runChoice();
  $("footer").replaceChildren(
    tag(
      "p",
      `pairre ${served.version}. Probabilities are estimates of a model, not facts; a fact that is not known is not thereby false.`,
    ),
  );
  return show({ focus: false });
}

theme();
remember();
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
  $("main").scrollIntoView();
});
start();
