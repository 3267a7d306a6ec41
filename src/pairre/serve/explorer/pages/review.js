// Review: discovered links one after another, judged by keyboard, with an estimate of how many of them are right.
import { baseNote, probability } from "../answers.js";
import { get, getText, post, runPath } from "../api.js";
import { make, tag, whole } from "../charts.js";
import { combobox } from "../combobox.js";
import { download } from "../files.js";
import { count, entity, inWords, kind, relation } from "../names.js";
import { announce, button, empty, failure, skeleton, soon } from "../parts.js";
import { whenPrepared } from "../prepared.js";
import { link } from "../route.js";
import { why, whyOf } from "../why.js";

const KEYS = { a: "accept", r: "reject", s: "skip" };
const DONE = { accept: "accepted", reject: "rejected", skip: "skipped" };
const AHEAD = 20; // links that are fetched at once
const LOW = 6; // links that are left when more are fetched

export async function reviewPage(view, { parameters, run, signal, about }) {
  const state = {
    queue: [],
    past: [],
    remaining: 0,
    summary: null,
    relation: parameters.get("relation"),
    busy: false,
    run,
    signal,
  };
  const card = tag("div.review-card");
  const tally = make("section", { ariaLabel: "Progress" });
  const chosen = tag("div");
  const base = { run, signal, state, card, tally };
  view.replaceChildren(
    tag("h1", "Review"),
    tag(
      "p.lead",
      "Links that the graph lacks and the model finds likely, the most likely first. Verdicts are kept in a file of the server, and a later one replaces an earlier one.",
    ),
    chosen,
    tag("div.review-grid", card, tally),
  );
  card.replaceChildren(skeleton(6, "Looking for links"));
  const ready = prepared(base)
    .then(() => Promise.all([refill(base), summarise(base)]))
    .then(() => {
      chosen.replaceChildren(scope(base));
      show(base);
      showTally(base);
    })
    .catch((error) => {
      if (error.name !== "AbortError")
        card.replaceChildren(failure(error, { again: () => reviewPage(view, { parameters, run, signal, about }) }));
    });
  const onkey = (event) => key(event, base);
  document.addEventListener("keydown", onkey);
  signal.addEventListener("abort", () => document.removeEventListener("keydown", onkey), { once: true });
  await soon(ready);
  return "Review";
}
const same = (a, b) => ["head", "relation", "tail"].every((place) => a[place].name === b[place].name);

// --- the queue ---

async function prepared({ run, signal, card }) {
  // The links are there.
  const ask = () => get(runPath(run), {}, { signal, keep: false });
  await whenPrepared("links", await ask(), ask, signal, card);
}
async function refill({ run, signal, state }) {
  const found = await get(runPath(run, "review"), { relation: state.relation, size: AHEAD }, { signal, keep: false });
  const seen = (one) =>
    state.queue.some((other) => same(one, other)) || state.past.some(({ answer }) => same(one, answer));
  state.queue.push(...found.links.filter((one) => !seen(one)));
  state.remaining = found.remaining;
  state.chosen = found.relation;
}
async function summarise({ run, signal, state }) {
  state.summary = await get(runPath(run, "review/summary"), {}, { signal, keep: false });
}
function key(event, base) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const verdict = KEYS[event.key.toLowerCase()];
  if (verdict) judge(verdict, base);
  else if (event.key.toLowerCase() === "u") undo(base);
  else return;
  event.preventDefault();
}
function judge(verdict, base) {
  const { state } = base;
  const [answer] = state.queue;
  if (!answer) return null;
  return change(base, async () => {
    await send(base, answer, verdict);
    state.past.push({ answer, verdict });
    state.queue.shift();
    state.remaining -= 1;
    const next = state.queue.length ? `Next: ${inWords(state.queue[0])}` : "No link is left.";
    announce(`${DONE[verdict]}. ${next}`);
    if (state.queue.length < LOW && state.remaining > state.queue.length) await refill(base);
  });
}
function undo(base) {
  // The last link stands in front again, as if nothing had been said of it.
  const { state } = base;
  const last = state.past.at(-1);
  if (!last) return null;
  return change(base, async () => {
    await send(base, last.answer, "undo");
    state.past.pop();
    state.queue.unshift(last.answer);
    state.remaining += 1;
    announce(`Back at ${inWords(last.answer)}, which was ${DONE[last.verdict]}.`);
  });
}
async function change(base, action) {
  // One change at a time. What fails is said above the link that then stands in front.
  const { state } = base;
  if (state.busy) return;
  state.busy = true;
  let failed = null;
  try {
    await action();
    await summarise(base);
  } catch (error) {
    if (error.name === "AbortError") return;
    failed = error;
  } finally {
    state.busy = false;
  }
  show(base);
  showTally(base);
  if (failed) base.card.prepend(failure(failed));
}
function send({ run }, { head, relation: between, tail }, verdict) {
  return post(runPath(run, "review"), { head: head.name, relation: between.name, tail: tail.name, verdict });
}

// --- what is shown ---

function show(base) {
  const { state, card } = base;
  const [answer, following] = state.queue;
  if (!answer) {
    card.replaceChildren(
      tag(
        "section.all-done",
        tag("h2", "Nothing is left to review"),
        empty(
          state.relation
            ? "All links of this relation are judged. "
            : "All discovered links are judged, or there are none. ",
          make("a", {
            href: link(state.relation ? "review" : ""),
            textContent: state.relation ? "Review all relations" : "To the overview",
          }),
        ),
      ),
    );
    return;
  }
  const focused = document.activeElement.dataset.verdict; // the button of the last verdict, if one was used
  const { panel } = why(answer, { opened: true });
  const part = (label, node) => tag("div.review-part", tag("span.soft", label), node);
  const choices = Object.entries(KEYS).map(([letter, verdict]) => {
    const node = button("", () => judge(verdict, base), { className: `button verdict ${verdict}` });
    node.append(
      tag("span", verdict[0].toUpperCase() + verdict.slice(1)),
      make("kbd", { textContent: letter, ariaHidden: "true" }),
    );
    node.setAttribute("aria-keyshortcuts", letter);
    node.dataset.verdict = verdict;
    return node;
  });
  const back = button("Undo the last verdict", () => undo(base), {
    className: "button quiet undo",
    disabled: !state.past.length,
  });
  back.append(make("kbd", { textContent: "u", ariaHidden: "true" }));
  const title = tag("h2.hidden-text", "Is this true?");
  const end = (ref) => tag("span", entity(ref, 120), " ", kind(ref));
  card.replaceChildren(
    make(
      "section",
      { ariaLabel: "Link to judge" },
      title,
      tag(
        "div.review-triple",
        part("head", end(answer.head)),
        part("relation", relation(answer.relation, 120)),
        part("tail", end(answer.tail)),
      ),
      tag("div.review-chance", probability(answer), tag("span.note", answer.base_rate === null ? "" : baseNote(answer))),
      tag("div.verdicts", ...choices),
      back,
    ),
    make("section", { ariaLabel: "Why" }, tag("h2", "Why the model says so"), panel),
  );
  if (focused) choices.find((node) => node.dataset.verdict === focused).focus();
  // Fetched after these reasons, so that it is there when it is needed and they do not wait for it.
  const ahead = () => following && whyOf(following);
  whyOf(answer).then(ahead, ahead).catch(() => null);
}
function scope(base) {
  const { state, run } = base;
  const field = combobox({
    label: "Only links of",
    kind: "relation",
    placeholder: "all relations",
    run: () => run,
    chosen: state.chosen,
    onchoose: ({ ref }) => {
      location.hash = link("review", { relation: ref.name });
    },
    onclear: () => {},
  });
  return tag(
    "div.controls.review-scope",
    field.node,
    state.relation
      ? button(
          "All relations",
          () => {
            location.hash = link("review");
          },
          { className: "button quiet" },
        )
      : "",
  );
}
function showTally(base) {
  const { state, tally } = base;
  const { summary } = state;
  const judged = summary.accepted + summary.rejected;
  const total = judged + summary.skipped;
  const bar = (name, value) => {
    const piece = make("i", { className: name });
    piece.style.width = `${(100 * value) / Math.max(total, 1)}%`;
    return piece;
  };
  const row = (name, value) => make("div", { className: name }, tag("dt", name), tag("dd", whole(value)));
  const { precision } = summary;
  tally.replaceChildren(
    tag("h2", "Progress"),
    make(
      "div",
      { className: "tally-bar", ariaHidden: "true" },
      bar("accepted", summary.accepted),
      bar("rejected", summary.rejected),
      bar("skipped", summary.skipped),
    ),
    tag(
      "dl.tally",
      row("accepted", summary.accepted),
      row("rejected", summary.rejected),
      row("skipped", summary.skipped),
      row("left", state.remaining),
    ),
    tag("h3", "How many are right"),
    precision
      ? tag(
          "p.precision",
          tag("strong", `${Math.round(100 * precision.estimate)}%`),
          tag(
            "span.soft",
            `95% interval ${Math.round(100 * precision.low)}% to ${Math.round(100 * precision.high)}%, by ${count(judged, "verdict")}`,
          ),
        )
      : empty("After the first verdict an estimate stands here."),
    tag(
      "p.note",
      "Of the links judged so far, which are the most likely ones; those further down will be right less often.",
    ),
    tag(
      "div.actions",
      button("Export CSV", () => save("csv", base), { disabled: !summary.accepted }),
      button("Export JSON", () => save("json", base), { disabled: !summary.accepted }),
    ),
  );
}
async function save(format, { run, tally }) {
  try {
    download(
      `${run.replace(/[^\w.-]+/g, "-")}-accepted.${format}`,
      await getText(runPath(run, "review/export"), { format }),
      format === "csv" ? "text/csv" : "application/json",
    );
  } catch (error) {
    tally.append(failure(error));
  }
}
