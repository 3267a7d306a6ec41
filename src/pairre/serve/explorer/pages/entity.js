// An entity: what is known of it by relation, what is likely beside it, and what is near.
import { baseNote, mark, weighed } from "../answers.js";
import { get, runPath } from "../api.js";
import { fixed, make, tag, whole } from "../charts.js";
import { neighbourhood } from "../drawing.js";
import { clipped, count, entity, inWords, kind, name, relation, visible } from "../names.js";
import { announce, copyLink, empty, failure, more, section, to } from "../parts.js";
import { askLink } from "../route.js";
import { why } from "../why.js";

const FACTS_SHOWN = 10;
const GROUPS_SHOWN = 12;
const MOST_FACTS = 200;
const LEAST = 0.01; // probability of what is called likely

export async function entityPage(view, { parameters, run, signal }) {
  const found = await get(runPath(run, "entity"), { name: parameters.get("name") ?? "" }, { signal });
  const { entity: ref, similar } = found;
  const groups = found.groups
    .map((group) => ({ ...group, likely: group.likely.filter(isLikely) }))
    .filter((group) => group.num_facts || group.likely.length);
  const everyLikely = groups.flatMap(({ likely }) => likely);
  const facts = section(
    "Known and likely",
    tag(
      "p.note.lead",
      everyLikely.length
        ? `What the graph has, and beside it what it lacks and the model finds most likely. ${baseNote(...everyLikely)}`
        : "What the graph has.",
    ),
  );
  if (groups.length) facts.append(filtered(groups.map((group) => groupNode(ref, group, { run, signal }))));
  else facts.append(empty("The graph has no facts of it. ", to(askLink({ head: ref }), "Ask what is likely"), "."));
  const heldOut = groups.some((group) => group.facts.some(({ split }) => split !== "train"));
  if (heldOut)
    facts.append(
      tag("p.note", "A fact with a mark, test or valid, was held out of training: the model has not seen it."),
    );
  if (found.num_groups > groups.length)
    facts.append(
      tag("p.note", `The ${whole(groups.length)} relations with the most facts, of ${whole(found.num_groups)}.`),
    );
  const drawing = section("Neighbourhood", neighbourhood(ref, { run, signal }));
  view.replaceChildren(title(found), tag("div.entity-grid", facts, tag("div.beside", drawing, near(similar))));
  announce(`${clipped(ref.shown)}: ${count(found.num_facts, "known fact")} in ${count(found.num_groups, "relation")}`);
  return ref.shown;
}
const isLikely = ({ probability: p }) => p === null || p >= LEAST;

function near(similar) {
  if (!similar.length) return section("Similar entities", empty("No other entity is near."));
  const row = ({ entity: other, similarity }) => {
    const value = tag("span.soft.measure", fixed(similarity, 2));
    value.title = "cosine of the two vectors";
    return tag("li.row", entity(other, 44), kind(other), value);
  };
  return section("Similar entities", tag("ol.plain", ...more(similar.map(row), 8, "entity")));
}
function title({ entity: ref, types, num_facts: number }) {
  const head = tag("h1", name(ref, 160));
  const about = tag(
    "p.about",
    ...types
      .slice(0, 4)
      .map((type) => make("span", { className: "kind", textContent: clipped(type, 50), title: clipped(type, 400) })),
    types.length > 4 ? tag("span.soft", `and ${types.length - 4} more types`) : "",
    ref.name === ref.shown
      ? ""
      : make("code", { textContent: clipped(ref.name, 80), title: clipped(ref.name, 600), dir: "auto" }),
    tag("span.soft", count(number, "known fact")),
  );
  const whole =
    ref.shown.length > 160
      ? tag(
          "details.whole-name",
          tag("summary", `The whole name (${count(ref.shown.length, "character")})`),
          make("p", { dir: "auto", textContent: visible(ref.shown) }),
        )
      : null;
  return tag(
    "div.title",
    tag("div", head, about, whole ?? ""),
    tag("div.actions", to(askLink({ head: ref }), "Ask about it", "button"), copyLink()),
  );
}
function groupNode(ref, group, context) {
  const { relation: between, side, num_facts: number, likely } = group;
  const out = side === "tail";
  const self = tag("span.soft", name(ref, 22));
  const open = tag("span.open", "…");
  const heading3 = tag(
    "h3",
    ...(out ? [self, " ", relation(between, 48), " ", open] : [open, " ", relation(between, 48), " ", self]),
  );
  const query = out ? { head: ref, relation: between } : { tail: ref, relation: between };
  const rows = likely.map((answer) => likelyRow(answer, side));
  const node = tag(
    "div.group",
    tag(
      "div.heading",
      heading3,
      tag("span.soft.number.grow", number ? `${whole(number)} known` : ""),
      make("a", {
        className: "ask-more",
        href: askLink(query),
        textContent: "Ask",
        ariaLabel: `Ask more about ${clipped(between.shown, 60)}`,
      }),
    ),
    tag(
      "div.pair-of-lists",
      known(ref, group, context),
      tag(
        "div.likely",
        tag("h4", "Likely"),
        rows.length ? tag("ol.plain.answers", ...rows.map(({ row }) => row)) : empty("Nothing more is likely."),
      ),
    ),
    ...rows.map(({ panel }) => panel),
  );
  node.dataset.text = `${between.shown} ${between.name}`.toLowerCase();
  node.dataset.number = number;
  return node;
}
function known(ref, { relation: between, side, num_facts: number, facts }, { run, signal }) {
  const list = tag("ul.plain.facts");
  const node = tag("div.known", tag("h4", "Known"), number ? list : empty("None is known."));
  const row = (fact) => tag("li", entity(fact.entity, 40), mark(fact.split));
  const load = async () => {
    try {
      const { groups } = await get(runPath(run, "entity"), { name: ref.name, limit: MOST_FACTS }, { signal });
      const same = groups.find((one) => one.relation.name === between.name && one.side === side);
      list.replaceChildren(...same.facts.map(row));
      opener.remove();
      list.children[facts.length]?.querySelector("a")?.focus();
      if (number > same.facts.length)
        node.append(tag("p.note", `The first ${whole(same.facts.length)} of ${whole(number)}.`));
    } catch (error) {
      if (error.name !== "AbortError") node.append(failure(error));
    }
  };
  const opener = make("button", {
    type: "button",
    className: "link more",
    textContent: `Load up to ${whole(Math.min(number, MOST_FACTS))}`,
    onclick: load,
  });
  const offer = () => {
    if (number > facts.length) node.append(opener);
  };
  list.replaceChildren(...more(facts.map(row), FACTS_SHOWN, "fact", offer));
  return node;
}
function likelyRow(answer, side) {
  const { button, panel } = why(answer, { side });
  panel.dataset.of = inWords(answer); // below both columns, where several may be open
  const row = tag("li.row", entity(answer[side], 40), mark(answer.known, true), weighed(answer, button));
  return { row, panel };
}
function filtered(groups) {
  // The first groups, and a field that finds any by its relation.
  const titles = make(
    "div",
    { className: "column-titles", ariaHidden: "true" },
    tag("span", "Known"),
    tag("span", "Likely"),
  );
  const list = tag("div", titles, tag("div.groups", ...groups));
  const note = tag("p.note");
  if (groups.length <= GROUPS_SHOWN) return list;
  const field = make("input", { type: "search", placeholder: "Filter by relation", ariaLabel: "Filter by relation" });
  let all = false;
  const show = () => {
    const wanted = field.value.trim().toLowerCase();
    const fitting = groups.filter(({ dataset }) => dataset.text.includes(wanted));
    const shown = new Set(all || wanted ? fitting : fitting.slice(0, GROUPS_SHOWN));
    for (const group of groups) group.hidden = !shown.has(group);
    note.textContent = fitting.length
      ? `${whole(shown.size)} of ${count(groups.length, "relation")}`
      : "No relation has a name like that.";
    opener.hidden = all || shown.size === fitting.length;
  };
  const opener = make("button", {
    type: "button",
    className: "button show-all",
    textContent: `Show all ${whole(groups.length)} relations`,
    onclick: () => {
      all = true;
      show();
      groups[GROUPS_SHOWN].querySelector("a").focus();
    },
  });
  field.addEventListener("input", show);
  show();
  return tag("div", tag("div.controls", field, note), list, opener);
}
