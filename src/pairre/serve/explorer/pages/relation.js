// A relation: how it behaves, how well it is ranked, what is likely to be missing, and where the model is wrong.
import { baseNote, mark, measure, weighed } from "../answers.js";
import { get, runPath } from "../api.js";
import { countsFigure, fixed, left, make, table, tag, whole } from "../charts.js";
import { clipped, count, entity, name, relation, sentence } from "../names.js";
import { announce, copyLink, empty, failure, more, scrolling, section, to } from "../parts.js";
import { whenPrepared } from "../prepared.js";
import { askLink, link } from "../route.js";
import { why } from "../why.js";

const CATEGORIES = {
  "1-1": "one tail for a head, and one head for a tail",
  "1-N": "many tails for a head",
  "N-1": "one tail for many heads",
  "N-N": "many tails for a head, and many heads for a tail",
};
const LINKS_SHOWN = 10;

export async function relationPage(view, { parameters, run, signal }) {
  const asked = parameters.get("name") ?? "";
  const again = () => get(runPath(run, "relation"), { name: asked }, { signal, keep: false });
  const found = await again();
  const { relation: ref } = found;
  const parts = { metrics: tag("div"), patterns: tag("div"), links: tag("div"), errors: tag("div") };
  view.replaceChildren(
    title(found),
    numbers(found),
    tag(
      "div.relation-grid",
      tag("div", section("Best discovered links", parts.links), section("Some of its facts", facts(found))),
      tag("div", section("Patterns", parts.patterns), section("Metrics", parts.metrics)),
    ),
    section("Worst errors", parts.errors),
  );
  const fill = (part, place, show) =>
    whenPrepared(part, found, again, signal, place)
      .then((ready) => place.replaceChildren(...show(ready)))
      .catch((error) => {
        if (error.name !== "AbortError") place.replaceChildren(failure(error));
      });
  fill("links", parts.links, links);
  fill("patterns", parts.patterns, patterns);
  fill("metrics", parts.metrics, metrics);
  fill("metrics", parts.errors, errors);
  announce(`Relation ${clipped(ref.shown)}, ${count(found.num_triples.train, "known fact")}`);
  return ref.shown;
}
function title({ relation: ref, category }) {
  return tag(
    "div.title",
    tag(
      "div",
      tag("h1", name(ref, 160)),
      tag(
        "p.about",
        make("span", { className: "kind", textContent: category, title: CATEGORIES[category] ?? "" }),
        tag("span.soft", CATEGORIES[category] ?? ""),
        ref.name === ref.shown
          ? ""
          : make("code", { textContent: clipped(ref.name, 80), title: clipped(ref.name, 600), dir: "auto" }),
      ),
    ),
    tag(
      "div.actions",
      to(askLink({ relation: ref }), "Ask about it", "button"),
      to(link("review", { relation: ref.name }), "Review its links", "button"),
      copyLink(),
    ),
  );
}
function facts({ sample }) {
  if (!sample.length) return empty("It has no known facts.");
  return tag("ul.plain.triples", ...sample.map((fact) => tag("li", sentence(fact), " ", mark(fact.split))));
}
function numbers(found) {
  const { train, valid, test } = found.num_triples;
  const cards = [
    ["known facts", whole(train + valid + test), valid + test ? `${whole(valid + test)} held out` : null],
    ["heads", whole(found.num_heads), `${fixed(found.tails_per_head, 1)} tails each`],
    ["tails", whole(found.num_tails), `${fixed(found.heads_per_tail, 1)} heads each`],
  ];
  const mrr = found.metrics.find(({ key }) => key === "mrr");
  if (mrr)
    cards.push([
      "MRR",
      fixed(mrr.value),
      mrr.interval ? `95%: ${fixed(mrr.interval[0])} to ${fixed(mrr.interval[1])}` : null,
    ]);
  return tag(
    "dl.cards",
    ...cards.map(([term, value, about]) =>
      tag("div", tag("dt", term), tag("dd", value, about ? tag("small", about) : "")),
    ),
  );
}
function links({ discovered, relation: ref }) {
  if (!discovered.length) return [empty("Nothing that the graph lacks is likely enough.")];
  const rows = discovered.map((answer) => {
    const { button, panel } = why(answer);
    return tag(
      "li",
      tag(
        "div.row",
        tag("span.who", entity(answer.head, 34), tag("span.soft", "→"), entity(answer.tail, 34)),
        weighed(answer, button),
      ),
      panel,
    );
  });
  return [
    tag("ol.plain.answers", ...more(rows, LINKS_SHOWN, "link")),
    tag("p.note", baseNote(...discovered)),
    tag("p.note", to(link("review", { relation: ref.name }), "Review them one after another")),
  ];
}
function patterns({ patterns: rows, histogram }) {
  const list = rows.length
    ? [
        scrolling(
          "Patterns",
          table(
            [{ text: "pattern", className: "text" }, "confidence", "agreement"],
            more(rows.slice(0, 12), 12, "pattern").map((row) => ({
              cells: [left(patternText(row)), fixed(row.confidence, 2), fixed(row.agreement, 2)],
            })),
          ),
        ),
        tag(
          "p.note",
          "Confidence: the share of its conclusions that are known facts. Agreement: how far the vectors satisfy its equation, 1 where they do.",
        ),
      ]
    : [empty("It takes part in no pattern.")];
  if (!histogram) return list;
  const { counts, edges, text } = histogram;
  return [
    ...list,
    tag("div.spaced", countsFigure(text, [counts], [edges[0], edges.at(-1)], [420, 170])),
    tag("p.note", "Over the features of the relation's two vectors. A pattern that holds is a peak at 0."),
  ];
}
function patternText({ pattern, relations, text }) {
  const [a, b, c] = relations.map((ref) => relation(ref, 40));
  const shown = {
    symmetry: [a],
    inverse: [a, " ⇄ ", b],
    subrelation: [a, " → ", b],
    composition: [a, " ∘ ", b, " → ", c],
  }[pattern] ?? [text];
  return make("span", { title: clipped(text, 300) }, tag("span.kind", pattern), " ", ...shown.filter(Boolean));
}
function metrics({ metrics: rows, num_ranked: number }) {
  if (!rows.length || !number) return [empty("None of its facts were held out of training, so nothing was measured.")];
  return [
    scrolling(
      "Metrics",
      table(
        [{ text: "metric", className: "text" }, "value", "95% interval"],
        rows.map(({ label, value, interval }) => ({
          cells: [left(label), measure(value), interval ? `${measure(interval[0])} to ${measure(interval[1])}` : ""],
        })),
      ),
    ),
    tag(
      "p.note",
      `Of ${count(number, "fact")} that were held out, each ranked among all heads and all tails, other known facts left out.`,
    ),
  ];
}
function errors({ worst_errors: rows }) {
  if (!rows.length) return [empty("No fact that was held out is ranked badly.")];
  return [
    scrolling(
      "Worst errors",
      table(
        [
          { text: "true fact", className: "text" },
          { text: "asked", className: "text" },
          "rank of the truth",
          { text: "answered before it", className: "text" },
        ],
        rows.map(({ triple, side, rank, better }) => ({
          cells: [
            left(sentence(triple, 34)),
            left(
              make("a", {
                href: askLink({ ...triple, [side]: null }, { known: 1 }),
                textContent: side === "head" ? "which head?" : "which tail?",
              }),
            ),
            whole(rank),
            left(
              tag(
                "span",
                better.length ? "" : "–",
                ...better.slice(0, 3).flatMap((ref, i) => [i ? ", " : "", entity(ref, 30)]),
              ),
            ),
          ],
        })),
      ),
    ),
    tag(
      "p.note",
      "Facts that were held out of training and that the model ranks worst, and what it answers instead. Some of these answers may be true.",
    ),
  ];
}
