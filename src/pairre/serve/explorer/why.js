// Why an answer is given: a button, and a panel that opens in place.
import { mark } from "./answers.js";
import { get, runPath } from "./api.js";
import { fixed, make, tag, whole } from "./charts.js";
import { clipped, count, inWords, sentence, spaced } from "./names.js";
import { empty, failure, skeleton } from "./parts.js";
import { route } from "./route.js";

const MOST_RULES = 5;
const MOST_WAYS = 2; // in which a rule fires
const DWELL = 120; // milliseconds that the pointer rests on a button, before its answer is fetched
const asked = new Map(); // requests under way
let next = 0;

export function why(answer, { side = "tail", opened = false, label = "Why?" } = {}) {
  // Returns the button and the panel, which asks the server when it is first opened.
  const panel = make("div", { id: `why-${next++}`, className: "why", hidden: true });
  const button = make("button", {
    type: "button",
    className: "why-button",
    textContent: label,
    onclick: () => toggle(panel.hidden),
  });
  button.setAttribute("aria-controls", panel.id);
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `${label} ${inWords(answer)}`);
  const load = async () => {
    panel.replaceChildren(skeleton(3, "Looking for reasons"));
    try {
      panel.replaceChildren(...reasons(await whyOf(answer, side)));
    } catch (error) {
      panel.replaceChildren(failure(error, { again: load }));
    }
  };
  function toggle(open) {
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open && !panel.hasChildNodes()) load();
  }
  let timer = 0;
  button.addEventListener("pointerenter", () => {
    timer = setTimeout(() => whyOf(answer, side).catch(() => null), DWELL);
  });
  button.addEventListener("pointerleave", () => clearTimeout(timer));
  if (opened) toggle(true);
  return { button, panel };
}
export function whyOf({ head, relation, tail }, side = "tail") {
  // The reasons, as the server gives them; asked once, so that they can be fetched before they are needed.
  const { run } = route();
  const key = JSON.stringify([run, head.name, relation.name, tail.name, side]);
  if (!asked.has(key))
    asked.set(
      key,
      get(runPath(run, "why"), { head: head.name, relation: relation.name, tail: tail.name, side }).finally(() =>
        asked.delete(key),
      ),
    );
  return asked.get(key);
}

function reasons({ triple, rules, necessary, similar_facts: similar }) {
  const groups = [
    group(
      "Rules that conclude it",
      "A rule is learnt from known facts; its confidence is the share of its conclusions that are known facts.",
      rules.slice(0, MOST_RULES).map(rule),
    ),
    group(
      "Facts that it depends on",
      "The vector of one end is fitted again, with all of its facts and without this one: the rank and the probability that the answer then has. First those without which it falls most among the candidates.",
      dependences(necessary, triple),
    ),
    group(
      "The same of similar entities",
      "Known facts with another head or tail, by how similar that one is.",
      similar.map(({ fact, similarity }) => [
        tag("span", sentence(fact), " ", mark(fact.split)),
        `similarity ${fixed(similarity, 2)}`,
      ]),
    ),
  ].filter(Boolean);
  return groups.length
    ? groups
    : [
        empty(
          "No rule concludes it, no single fact decides it, and no similar entity has the same. The vectors as a whole make it likely.",
        ),
      ];
}
function rule({ text, confidence, facts, num_ways: ways }) {
  const shown = facts
    .slice(0, MOST_WAYS)
    .map((way) =>
      tag(
        "div.because",
        tag("span.soft", "because "),
        ...spaced(...way.map((fact, i) => tag("span", i ? tag("span.soft", "and ") : "", sentence(fact)))),
      ),
    );
  const rest = ways - shown.length;
  if (rest > 0) shown.push(tag("div.because.soft", `and in ${count(rest, "more way")}`));
  return [tag("span.rule", text), `confidence ${fixed(confidence, 2)}`, ...shown];
}
function dependences(necessary, triple) {
  // One row for a fact, which may have been left out at both ends of the answer.
  const rows = new Map();
  for (const one of necessary) {
    const key = JSON.stringify([one.fact.head.name, one.fact.relation.name, one.fact.tail.name]);
    if (!rows.has(key)) rows.set(key, [tag("span", sentence(one.fact), " ", mark(one.fact.split)), []]);
    rows.get(key)[1].push(dependence(one, triple));
  }
  return [...rows.values()];
}
function dependence({ of, drop }, triple) {
  const { rank_before: first, rank_after: then, probability_before: p, probability_after: q } = drop;
  const parts = [first === then ? `rank stays ${whole(then)}` : change("rank", whole(first), whole(then))];
  if (p === null) parts.push(change("score", fixed(drop.score_before, 2), fixed(drop.score_after, 2)));
  else parts.push(change("probability", fixed(p, digits(p, q)), fixed(q, digits(p, q))));
  return `${clipped(triple[of].shown, 24)}: ${parts.join(", ")}`;
}
const change = (what, from, to) => [what, from, "→", to].join("\u00a0"); // on one line
// Enough digits to tell two probabilities apart.
const digits = (p, q) => [2, 3, 4].find((n) => p.toFixed(n) !== q.toFixed(n)) ?? 4;
function group(title, note, rows) {
  if (!rows.length) return null;
  const items = rows.map(([first, about, ...rest]) =>
    tag("li", tag("div.reason", first, ...[about].flat().map((text) => tag("span.soft.measure", text))), ...rest),
  );
  return tag("div.why-group", tag("p.why-title", title), tag("p.note", note), tag("ul", ...items));
}
