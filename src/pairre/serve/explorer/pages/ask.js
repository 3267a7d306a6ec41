// A question with one open place, or a whole triple to judge; its address can be shared.
import { baseNote, mark, probability, weighed } from "../answers.js";
import { get, post, runPath } from "../api.js";
import { fixed, make, tag, whole } from "../charts.js";
import { combobox } from "../combobox.js";
import { csv, download } from "../files.js";
import { clipped, count, entity, inWords, kind, relation, sentence } from "../names.js";
import { announce, button, copyLink, empty, failure, skeleton, soon } from "../parts.js";
import { askLink, route } from "../route.js";
import { why } from "../why.js";
import { questionsToTry } from "./landing.js";

const PLACES = ["head", "relation", "tail"];
const KS = [10, 25, 50, 100];
const COLUMNS = ["rank", "head", "relation", "tail", "score", "probability", "base_rate", "known"];

export async function askPage(view, { parameters, run, signal }) {
  const results = tag("div.results");
  const asked = Object.fromEntries(PLACES.map((place) => [place, parameters.get(place) || null]));
  const names = await shownNames(asked, run, signal);
  view.replaceChildren(
    tag("h1", "Ask"),
    tag(
      "p.lead",
      "Fill in two places and leave the third open: it is what you ask for. Fill in all three to have a triple judged.",
    ),
    questionForm(parameters, names, run),
    results,
  );
  const filled = PLACES.filter((place) => asked[place]);
  if (filled.length < 2) {
    results.replaceChildren(filled.length ? empty("Fill in one more place, and the answers stand here.") : "");
    if (!filled.length) results.append(questionsToTry(await get(runPath(run), {}, { signal })));
    return "Ask";
  }
  results.replaceChildren(skeleton(6, "Looking for answers"));
  const answering = filled.length === 3 ? judged(asked, { run, signal }) : answered(asked, parameters, { run, signal });
  answering
    .then((nodes) => results.replaceChildren(...nodes))
    .catch((error) => {
      if (error.name !== "AbortError")
        results.replaceChildren(
          failure(error, { again: () => askPage(view, { parameters, run, signal }), suggest: instead(asked, names) }),
        );
    });
  await soon(answering);
  return inWords(Object.fromEntries(PLACES.map((place) => [place, names[place]])));
}

function instead(asked, names) {
  // Returns a link to the same question with another name in the place of the one that was not found.
  const place = PLACES.find((one) => asked[one] && names[one].unknown);
  return (
    place &&
    ((text) =>
      make("a", {
        href: askLink({
          ...Object.fromEntries(PLACES.map((one) => [one, { name: asked[one] }])),
          [place]: { name: text },
        }),
        textContent: clipped(text, 60),
      }))
  );
}

// --- the question ---

async function shownNames(asked, run, signal) {
  // What people read for the names in the address; a name that is not found is shown as it is.
  const pairs = PLACES.map(async (place) => {
    const text = asked[place];
    if (!text) return [place, null];
    const plain = { name: text, shown: text, label: null, type: null, unknown: true };
    try {
      const { results } = await get(
        runPath(run, "search"),
        { q: text.slice(0, 200), kind: place === "relation" ? "relation" : "entity", limit: 5 },
        { signal },
      );
      return [place, results.find(({ ref }) => ref.name === text)?.ref ?? plain];
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return [place, plain];
    }
  });
  return Object.fromEntries(await Promise.all(pairs));
}
function questionForm(parameters, names, run) {
  const fields = {};
  const labels = { head: "Head", relation: "Relation", tail: "Tail" };
  for (const place of PLACES)
    fields[place] = combobox({
      label: labels[place],
      kind: place === "relation" ? "relation" : "entity",
      placeholder: "? (open)",
      run: () => run,
      chosen: names[place],
      onchoose: () => chosen(place),
    });
  const k = make(
    "select",
    { id: "ask-k" },
    ...KS.map((value) =>
      make("option", { value, textContent: value, selected: String(value) === (parameters.get("k") ?? "10") }),
    ),
  );
  const type = make("input", {
    id: "ask-type",
    type: "text",
    value: parameters.get("type") ?? "",
    placeholder: "any",
    size: 12,
  });
  const kinds = make("datalist", { id: "ask-types" });
  type.setAttribute("list", kinds.id);
  const tick = (id, label, title) => [
    make("input", { id, type: "checkbox", checked: parameters.has(id.replace("ask-", "")) }),
    make("span", { textContent: label, title }),
  ];
  const ofType = make("label", { title: "Only entities of this type", hidden: true }, "Type", type, kinds);
  offerTypes(run, type, kinds, ofType);
  const known = tick("ask-known", "also known answers", "Facts that the graph already has, marked as such");
  const any = tick("ask-any", "also implausible ones", "Candidates of a kind that this relation never has");
  const form = tag(
    "form.ask",
    tag("div.ask-places", ...PLACES.map((place) => fields[place].node)),
    tag(
      "div.controls",
      tag("label", "Answers", k),
      ofType,
      tag("label", ...known),
      tag("label", ...any),
      tag("span.grow"),
      button(
        "Clear",
        () => {
          location.hash = askLink({});
        },
        { className: "button quiet" },
      ),
      tag("button.button.strong", "Ask"),
    ),
  );
  const go = () => {
    const text = (place) => fields[place].ref?.name ?? fields[place].text();
    const query = Object.fromEntries(PLACES.map((place) => [place, { name: text(place) }]));
    const address = askLink(query, {
      k: k.value === "10" ? "" : k.value,
      known: known[0].checked && 1,
      any: any[0].checked && 1,
      type: type.value.trim(),
    });
    if (address === location.hash) dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
    else location.hash = address;
  };
  function chosen(place) {
    const filled = PLACES.filter((one) => fields[one].text() || one === place);
    if (filled.length >= 2) return go();
    return fields[PLACES.find((one) => !fields[one].text())].focus();
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (PLACES.filter((place) => fields[place].text()).length >= 2) return go();
    announce("Fill in two places.");
    return fields[PLACES.find((place) => !fields[place].text())].focus();
  });
  return form;
}

async function offerTypes(run, field, list, label) {
  // Shows the field of a type where the entities of the graph have any.
  const { sample_entities: samples } = await get(runPath(run)).catch(() => ({ sample_entities: [] }));
  const types = samples.map(({ type }) => type).filter((type) => type !== null);
  list.replaceChildren(...types.map((value) => make("option", { value })));
  label.hidden = !types.length && !field.value;
}

// --- answers ---

async function answered(asked, parameters, { run, signal }) {
  const choice = {
    k: parameters.get("k") ?? 10,
    known: parameters.has("known"),
    any: parameters.has("any"),
    type: parameters.get("type"),
  };
  const found = await get(runPath(run, "predict"), { ...asked, ...choice }, { signal });
  const open = PLACES.find((place) => !asked[place]);
  const { answers, query } = found;
  announce(
    answers.length ? `${count(answers.length, "answer")}. First: ${clipped(answers[0][open].shown)}` : "No answers",
  );
  const title = tag(
    "div.heading",
    asHeading(sentence(query)),
    tag(
      "div.actions",
      ...(answers.length ? [button("CSV", () => save("csv", found)), button("JSON", () => save("json", found))] : []),
      copyLink(),
    ),
  );
  const because =
    open === "relation"
      ? "because they have no heads or no tails of these kinds"
      : "because this relation has no answers of their kind";
  const left = found.num_implausible
    ? tag(
        "p.note",
        `${count(found.num_implausible, open === "relation" ? "relation" : "candidate")} left out, ${because}.`,
      )
    : "";
  const box = make(
    "section",
    { ariaLabel: "Answers" },
    title,
    answers.length
      ? tag("ol.plain.answers.large", ...answers.map((answer) => answerRow(answer, open)))
      : empty(
          choice.known
            ? "Nothing fits."
            : "Nothing new fits. Also look among known answers, or among implausible ones.",
        ),
    answers.length && answers.every(({ probability: p, base_rate: base }) => p !== null && p < base)
      ? tag("p.note", "None of these is likely: each is below the base rate.")
      : "",
    left,
    answers.length ? tag("p.note", baseNote(...answers)) : "",
  );
  return [box];
}
function asHeading(...nodes) {
  // The heading that is in focus when the answers are there.
  const node = tag("h2", ...nodes);
  node.dataset.arrive = "";
  return node;
}
function answerRow(answer, open) {
  const { button: opener, panel } = why(answer, { side: open === "head" ? "head" : "tail" });
  const show = open === "relation" ? relation : entity;
  return tag(
    "li",
    tag(
      "div.row",
      tag(
        "span.ranked",
        tag("span.rank", answer.rank),
        tag("span.who", show(answer[open], 70), kind(answer[open]), mark(answer.known, true)),
      ),
      weighed(answer, opener),
    ),
    panel,
  );
}
async function judged(asked, { run, signal }) {
  const triple = PLACES.map((place) => asked[place]);
  const {
    scores: [found],
  } = await post(runPath(run, "score"), { triples: [triple] }, { signal });
  const { button: opener, panel } = why(found, { opened: true, label: "Why" });
  const cards = [
    ["head", found.head_rank],
    ["tail", found.tail_rank],
  ].map(([side, rank]) => tag("div", tag("dt", `rank as ${side}`), tag("dd", whole(rank))));
  announce(`Rank ${found.tail_rank} as tail, ${found.head_rank} as head`);
  return [
    make(
      "section",
      { ariaLabel: "Judgement" },
      tag("div.heading", asHeading(sentence(found), " ", mark(found.known, true)), tag("div.actions", copyLink())),
      tag(
        "dl.cards",
        tag("div", tag("dt", "probability"), tag("dd", probability(found))),
        tag("div", tag("dt", "score"), tag("dd", fixed(found.score))),
        ...cards,
      ),
      tag("p.note", `Ranks are among all entities that complete no other known fact. ${baseNote(found)}`),
      opener,
      panel,
    ),
  ];
}
function save(format, { query, answers }) {
  const rows = answers.map((answer) => COLUMNS.map((column) => answer[column]?.name ?? answer[column]));
  const about = Object.values(query)
    .filter(Boolean)
    .map(({ shown }) => shown)
    .join("-")
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .slice(0, 60);
  const fileName = `${route().run.replace(/[^\w.-]+/g, "-")}-${about || "answers"}.${format}`;
  if (format === "csv") download(fileName, csv(COLUMNS, rows), "text/csv");
  else
    download(
      fileName,
      `${JSON.stringify(
        rows.map((row) => Object.fromEntries(COLUMNS.map((column, i) => [column, row[i]]))),
        null,
        2,
      )}\n`,
      "application/json",
    );
  announce(`${fileName} is saved.`);
}
