// The overview: what the graph is, where to begin, and how far its run can be trusted.
import { measure } from "../answers.js";
import { get, runPath } from "../api.js";
import { fixed, left, make, reliabilityFigure, shareBar, table, tag, whole } from "../charts.js";
import { combobox } from "../combobox.js";
import { clipped, count, entity, relation } from "../names.js";
import { empty, failure, heading, scrolling, section, skeleton } from "../parts.js";
import { whenPrepared } from "../prepared.js";
import { askLink, link, route } from "../route.js";

export async function landing(view, { run, signal, about }) {
  const found = await get(runPath(run), {}, { signal, keep: false });
  const relations = tag("div.columns");
  const trust = tag("div");
  view.replaceChildren(
    opening(found),
    numbers(found),
    questionsToTry(found),
    samples(found),
    section(
      "Relations",
      tag("p.note.lead", "By the mean reciprocal rank (MRR) of facts that were held out of training: 1 is best."),
      relations,
    ),
    section("How far to trust it", trust),
  );
  showMeasured(found, relations, trust, { run, signal });
  return about.graph;
}
function opening(found) {
  const example = found.sample_entities[0]?.entities[0];
  const field = combobox({
    label: "Search the graph",
    hideLabel: true,
    placeholder: example ? `Type a name, such as ${clipped(example.shown, 40)}` : "Type a name",
    run: () => route().run,
    onchoose: ({ ref, kind }) => {
      location.hash = link(kind === "relation" ? "relation" : "entity", { name: ref.name });
    },
  });
  field.input.classList.add("large");
  return tag(
    "div.hero",
    make("h1", { dir: "auto", textContent: clipped(found.graph, 120) }),
    tag(
      "p.lead",
      `A graph of ${count(found.num_entities, "entity", "entities")} and ${count(found.num_relations, "relation")}. `,
      "Look up what is known, see what is likely to be missing, and why.",
    ),
    field.node,
  );
}
function numbers(found) {
  const { train, valid, test } = found.num_triples;
  const cards = [
    ["entities", whole(found.num_entities)],
    ["relations", whole(found.num_relations)],
    [
      "known facts",
      whole(train + valid + test),
      valid + test ? `${whole(train)} to learn from, ${whole(valid + test)} held out` : "all to learn from",
    ],
    ["model", found.model, `${whole(found.features)} features`],
    ...(found.mrr === null ? [] : [["MRR", fixed(found.mrr), "on facts that were held out"]]),
  ];
  return make(
    "dl",
    { className: "cards", ariaLabel: "Sizes" },
    ...cards.map(([term, value, more]) =>
      tag("div", tag("dt", term), tag("dd", value, more ? tag("small", more) : "")),
    ),
  );
}
export function questionsToTry(found) {
  if (!found.questions.length) return make("span", { hidden: true });
  return section(
    "Questions to try",
    tag(
      "ul.questions",
      ...found.questions.map((question) =>
        tag("li", make("a", { href: askLink(question) }, tag("bdi", clipped(question.text, 140)))),
      ),
    ),
  );
}
function samples(found) {
  const several = found.sample_entities.length > 1;
  const groups = found.sample_entities
    .filter(({ entities }) => entities.length)
    .map(({ type, num_entities: number, entities }) => {
      const title = type === null ? "With the most facts" : clipped(type, 60);
      return tag(
        "div.sample",
        heading(title, 3, tag("span.soft", count(number, "entity", "entities"))),
        tag("ul.chips", ...entities.map((ref) => tag("li", entity(ref, 40)))),
      );
    });
  return section(
    several ? "Entities by type" : "Entities",
    groups.length ? tag("div.samples", ...groups) : empty("The graph has no entities."),
  );
}
async function showMeasured(found, relations, trust, { run, signal }) {
  // What needs the metrics of held-out facts, which the server may still compute.
  trust.replaceChildren(skeleton(5));
  try {
    const ready = await whenPrepared(
      "metrics",
      found,
      () => get(runPath(run), {}, { signal, keep: false }),
      signal,
      relations,
    );
    showRelations(relations, ready);
    await showMetrics(trust, { run, signal });
  } catch (error) {
    if (error.name !== "AbortError") relations.replaceChildren(failure(error));
  }
}
function showRelations(place, found) {
  const list = (title, rows) =>
    tag(
      "div",
      heading(title, 3),
      scrolling(
        title,
        table(
          [{ text: "relation", className: "text" }, "held out", "MRR"],
          rows.map(({ relation: ref, mrr, num_triples: number }) => ({
            cells: [left(relation(ref, 44)), whole(number), { node: shareBar(mrr) }],
          })),
        ),
      ),
    );
  const some = found.best_relations.length + found.worst_relations.length;
  place.replaceChildren(
    ...(some
      ? [list("Ranked best", found.best_relations), list("Ranked worst", found.worst_relations)]
      : [empty("No relation has enough facts that were held out of training to be compared.")]),
  );
}
async function showMetrics(place, { run, signal }) {
  try {
    const found = await get(runPath(run, "metrics"), {}, { signal });
    if (!found.num_triples)
      return place.replaceChildren(empty("No facts were held out of training, so nothing was measured."));
    const rows = found.both.map((metric, i) => ({
      cells: [
        left(metric.label),
        measure(metric.value),
        metric.interval ? `${measure(metric.interval[0])} to ${measure(metric.interval[1])}` : "",
        measure(found.head[i]?.value),
        measure(found.tail[i]?.value),
      ],
    }));
    const measured = tag(
      "div",
      scrolling("Metrics", table([{ text: "metric", className: "text" }, "both sides", "95%", "heads", "tails"], rows)),
      tag(
        "p.note",
        `${count(found.num_triples, "fact")} of the ${found.split} split, each ranked among all heads and all tails, other known facts left out.`,
      ),
    );
    const diagram = found.reliability.length
      ? tag(
          "div",
          reliabilityFigure(
            "Share of true answers, by probability",
            found.reliability.map((bin) => [bin.probability, bin.true, bin.num_answers]),
          ),
          tag("p.note", found.reliability_note ?? ""),
        )
      : empty("There are no held-out facts to set probabilities by, so answers have scores only.");
    return place.replaceChildren(tag("div.columns", measured, diagram));
  } catch (error) {
    if (error.name !== "AbortError")
      place.replaceChildren(failure(error, { again: () => showMetrics(place, { run, signal }) }));
  }
  return undefined;
}
