// The sections of the page, from the JSON it carries; drawn with what charts.js has.
const data = JSON.parse(document.getElementById("data").textContent);
const names = data.relations.name;
const METRICS = data.metrics; // [{ key, label, digits }], as pairre.evaluation.metrics declares them
const LABELS = Object.fromEntries(METRICS.map(({ key, label }) => [key, label]));
const SIDES = { both: "both sides", head: "predicting heads", tail: "predicting tails" };
const KINDS = ["symmetry", "inverse", "subrelation", "composition"];
const SHORT = { symmetry: "sym", inverse: "inv", subrelation: "sub", composition: "comp" };
const PALETTE = ["#4477cc", "#e08a2b", "#3a9d6e", "#c2527d", "#8a63c9", "#a88b2c", "#2aa3b3", "#b35b4a"];
const MOST_ROWS = 500; // of a table

function relationLink(id) {
  return make("button", { className: "link", type: "button", textContent: names[id], onclick: (event) => {
    event.stopPropagation();
    choose(id);
  } });
}

// --- relation vectors ---

function decoded(text) {
  // Half-precision numbers in base 64 → Float32Array.
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const halves = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => {
    const bits = halves.getUint16(2 * i, true), exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
    return bits & 0x8000 ? -size : size;
  });
}
const vectors = data.vectors && {
  head: decoded(data.vectors.head), tail: decoded(data.vectors.tail), dim: data.vectors.dim,
  place: new Map(data.vectors.relations.map((id, place) => [id, place])),
};
function vector(part, id) {
  const start = vectors.place.get(id) * vectors.dim;
  return vectors[part].subarray(start, start + vectors.dim);
}
const times = (...parts) => parts[0].map((_, k) => parts.reduce((product, part) => product * part[k], 1));
function sides(kind, ids) {
  // The two products that the pattern says are equal.
  const [h, t] = ["head", "tail"].map((part) => ids.map((id) => vector(part, id)));
  if (kind === "symmetry") return [times(h[0], h[0]), times(t[0], t[0])];
  if (kind === "inverse") return [times(h[0], h[1]), times(t[0], t[1])];
  if (kind === "subrelation") return [times(h[0], t[1]), times(t[0], h[1])];
  return [times(h[0], h[1], t[2]), times(t[0], t[1], h[2])];
}
const sum = (values) => values.reduce((total, v) => total + v, 0);
function most(values, share = 0.98) {
  const ordered = Float32Array.from(values, Math.abs).sort();
  return ordered[Math.floor(share * (ordered.length - 1))] || 1;
}
function agreement(kind, ids) {
  const [x, y] = sides(kind, ids);
  const all = sum(x.map((v, k) => Math.abs(v) + Math.abs(y[k])));
  const agreed = all ? 1 - sum(x.map((v, k) => Math.abs(v - y[k]))) / all : 0;
  if (kind !== "subrelation") return agreed;
  const [one, two] = ids.map((id) => sum(vector("head", id).map((v, k) => Math.hypot(v, vector("tail", id)[k]))));
  return agreed * (two > one ? one / two : 1);
}

// --- sections ---

function summary() {
  document.title = data.title;
  $("title").textContent = data.title;
  $("subtitle").textContent = data.subtitle;
  $("unfinished").textContent = data.unfinished;
  $("footer").textContent = data.footer;
  $("facts").append(...data.facts.map(([term, value, more]) =>
    make("div", {}, make("dt", { textContent: term }), make("dd", {}, value, more ? make("small", { textContent: more }) : ""))));
}
function answers() {
  const probable = data.answers.some(({ p }) => p !== null);
  $("answers-table").append(table(
    [{ text: "head", className: "text" }, { text: "relation", className: "text" }, { text: "new tail", className: "text" }, probable ? "probability" : "score"],
    data.answers.map(({ head, relation, tail, score, p }) => ({ cells: [left(head), left(relationLink(relation)), left(tail), { node: p === null ? `${probable ? "score " : ""}${fixed(score)}` : shareBar(p, data.base_rate) }] }))));
  $("answers-note").textContent = `The best answers that the graph lacks, for the most frequent relations and a sample of their heads. ${data.answers_note ? `${data.answers_note} The mark in a bar is the base rate.` : "There is no validation split, so scores have no probabilities."}`;
  if (data.reliability) {
    $("reliability").append(reliabilityFigure("Share of true answers, by probability", data.reliability.bins),
      make("p", { className: "note", textContent: data.reliability.note }));
  } else $("reliability").remove();
  if (!data.answers.length) $("answers").remove();
}
function errors() {
  if (!data.errors?.length) return $("errors").remove();
  const query = ({ side, anchor }) => (side === "tail" ? `${anchor} → ?` : `? → ${anchor}`);
  $("errors-table").append(table(
    [{ text: "relation", className: "text" }, "MRR", { text: "query", className: "text" }, { text: "true answer", className: "text" }, "rank", { text: "best new answer", className: "text" }],
    data.errors.map((error) => ({ cells: [left(relationLink(error.relation)), fixed(data.relations.mrr[error.relation]), left(query(error)), left(error.true),
      short(error.rank), error.instead === null ? "–" : left(error.instead)] }))));
  $("errors-note").textContent = "The fact of each relation that is ranked worst, and what is answered first instead of it.";
}
function training() {
  const figures = [["loss", data.curves.loss], ["validation MRR", data.curves.valid]]
    .filter(([, points]) => points.length).map(([caption, points]) => lineFigure(`${caption}, by step`, points));
  $("curves").append(...(figures.length ? figures : ["The run kept no log of its training."]));
}
function metrics() {
  const found = data.evaluation;
  if (!found) {
    $("metrics-note").textContent = data.no_evaluation;
    return $("categories").remove();
  }
  const row = (side, className) => ({ className, cells: [left(SIDES[side]), ...METRICS.map(({ key, digits }) => fixed(found[side][key], digits))] });
  const bound = (label, i) => ({ cells: [left(label), ...METRICS.map(({ key, digits }) => (found.interval_95[key] ? fixed(found.interval_95[key][i], digits) : ""))] });
  $("metrics-table").append(table([{ text: "", className: "text" }, ...METRICS.map(({ label }) => label)], [
    row("both", "strong"), bound("95% from", 0), bound("95% to", 1), row("head"), row("tail")]));
  $("metrics-note").textContent = data.metrics_note;
  categories(found.by_category);
}
function categories(groups) {
  const present = data.categories.filter((c) => groups[c]), words = (c) => c.replace("-", "-to-");
  const shown = data.breakdown_metrics;
  const cells = (side) => shown.flatMap((key) => data.categories.map((c) => fixed(groups[c]?.[side][key])));
  $("categories-table").append(table(
    [{ text: "", className: "text" }, ...shown.flatMap(() => data.categories.map(words))],
    [...Object.entries(SIDES).map(([side, label]) => ({ className: side === "both" ? "strong" : "", cells: [left(label), ...cells(side)] })),
      { cells: [left("triples"), ...shown.flatMap(() => data.categories.map((c) => whole(groups[c]?.num_triples ?? 0)))] }],
    ["", ...shown.map((key) => ({ text: LABELS[key], span: data.categories.length, className: "group" }))]));
  const { picture, up, height } = frame(700, 190, [0, 0], [0, 1]);
  picture.querySelectorAll("text[text-anchor=middle]").forEach((node) => node.remove());
  present.forEach((c, i) => {
    const step = 640 / present.length, start = 52 + i * step;
    ["head", "tail"].forEach((side, s) => {
      const value = groups[c][side].hits_at_10, size = Math.min(step / 3, 60);
      picture.append(tip(draw("rect", { class: s ? "bar" : "bar other", x: start + step / 2 - size + s * size, width: size - 2, y: up(value), height: height - up(value) }),
        `${words(c)}, ${SIDES[side]}\n${LABELS.hits_at_10} ${fixed(value)}`));
    });
    picture.append(draw("text", { x: start + step / 2, y: 184, "text-anchor": "middle" }, words(c)));
  });
  $("categories-figure").append(captioned(`${LABELS.hits_at_10}: ${SIDES.head} (grey), ${SIDES.tail} (colour)`, picture));
}

// --- the table of relations ---

let chosenRelation = null;
const order = { column: "train", descending: true };
const badges = new Map();
const borneOut = (pattern) => pattern.confidence !== null; // by the triples
for (const kind of KINDS) for (const pattern of (data.patterns[kind] ?? []).filter(borneOut)) for (const id of new Set(pattern.ids)) {
  if (!badges.has(id)) badges.set(id, {});
  const own = (badges.get(id)[kind] ??= { count: 0, vectors: false });
  own.count += 1;
  own.vectors ||= pattern.vectors;
}
const COLUMNS = [["name", "relation"], ["category", "category"], ["train", "train"], ["ranked", "ranked"], ...data.breakdown_metrics.map((key) => [key, LABELS[key]]), ["symmetry", "symmetry"]]
  .filter(([key]) => data.relations[key]);
function relations() {
  const wanted = $("relation-text").value.toLowerCase(), category = $("relation-category").value;
  const column = data.relations[order.column], sign = order.descending ? -1 : 1;
  const shown = names.map((_, id) => id)
    .filter((id) => names[id].toLowerCase().includes(wanted) && (!category || data.relations.category[id] === category))
    .sort((a, b) => {
      const [one, two] = [column[a], column[b]];
      if (one === null || two === null) return (one === null) - (two === null); // nothing to compare comes last
      return sign * (typeof one === "string" ? one.localeCompare(two) : one - two) || a - b;
    });
  if (chosenRelation !== null && shown.indexOf(chosenRelation) >= MOST_ROWS) shown.unshift(...shown.splice(shown.indexOf(chosenRelation), 1));
  const head = [...COLUMNS.map(([key, label]) => {
    const th = make("th", { className: key === "name" ? "text" : "" }, make("button", { type: "button", textContent: label + (order.column === key ? (order.descending ? " ↓" : " ↑") : ""), onclick: () => {
      Object.assign(order, { descending: order.column === key ? !order.descending : key !== "name" && key !== "category", column: key });
      relations();
    } }));
    if (order.column === key) th.ariaSort = order.descending ? "descending" : "ascending";
    return th;
  }), { text: "patterns", className: "text" }];
  const cell = (id, key) => {
    const value = data.relations[key][id];
    if (key === "name") return { node: relationLink(id), className: "text" };
    return key === "category" ? value : ["train", "ranked"].includes(key) ? whole(value) : fixed(value);
  };
  $("relations-table").replaceChildren(table(head, shown.slice(0, MOST_ROWS).map((id) => ({
    className: id === chosenRelation ? "at" : "", cells: [...COLUMNS.map(([key]) => cell(id, key)), { node: patternBadges(id), className: "text" }] }))));
  $("relation-count").textContent = `${whole(shown.length)} of ${whole(names.length)}` + (shown.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : "");
}
function patternBadges(id) {
  return make("span", {}, ...Object.entries(badges.get(id) ?? {}).map(([kind, { count, vectors: seen }]) => {
    const badge = make("button", { type: "button", className: "badge" + (seen ? " vectors" : ""), textContent: SHORT[kind] + (count > 1 ? ` ${count}` : ""), onclick: () => {
      $("pattern-text").value = names[id];
      patterns(kind);
      $("patterns").scrollIntoView();
    } });
    return tip(badge, `${kind}: ${count}, ${seen ? "in the triples and in the vectors" : "in the triples only"}`);
  }));
}

// --- patterns and the histogram of any of them ---

let shownKind = KINDS.find((kind) => data.patterns[kind]?.length) ?? "symmetry";
let explored = null;
function sentence(kind, ids) {
  const [a, b, c] = ids.map(relationLink);
  if (kind === "symmetry") return make("span", {}, a);
  if (kind === "inverse") return make("span", {}, a, " ⇄ ", b);
  return kind === "subrelation" ? make("span", {}, a, " → ", b) : make("span", {}, a, " ∘ ", b, " → ", c);
}
function patterns(kind = shownKind) {
  shownKind = kind;
  $("pattern-tabs").replaceChildren(...KINDS.map((k) => {
    const tab = make("button", { type: "button", textContent: `${k} ${whole(data.patterns[k]?.length ?? 0)}`, onclick: () => patterns(k) });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-selected", String(k === kind));
    return tab;
  }));
  const wanted = $("pattern-text").value.toLowerCase();
  const found = (data.patterns[kind] ?? []).filter((p) => p.ids.some((id) => names[id].toLowerCase().includes(wanted)));
  const drawn = (p) => vectors && p.ids.every((id) => vectors.place.has(id));
  const rows = found.slice(0, MOST_ROWS).map((p) => ({
    className: (drawn(p) ? "pick" : "") + (explored && explored.kind === kind && String(explored.ids) === String(p.ids) ? " at" : ""),
    onclick: drawn(p) && (() => explore(kind, p.ids)),
    cells: [left(sentence(kind, p.ids)), ...(vectors ? [fixed(p.agreement) + (p.vectors ? " ✓" : "")] : []), p.confidence === null ? "–" : fixed(p.confidence) + " ✓"],
  }));
  $("patterns-table").replaceChildren(table([{ text: kind, className: "text" }, ...(vectors ? ["agreement"] : []), "confidence"], rows));
  $("pattern-count").textContent = `${whole(found.length)} found` + (found.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : "");
}
function explore(kind, ids) {
  const slots = { symmetry: 1, inverse: 2, subrelation: 2, composition: 3 }[kind];
  const full = data.vectors.relations;
  ids = Array.from({ length: slots }, (_, i) => (vectors.place.has(ids[i]) ? ids[i] : full[Math.min(i, full.length - 1)]));
  explored = { kind, ids };
  const select = (label, value, options, change) => make("label", {}, make("span", { textContent: label }),
    make("select", { onchange: (event) => change(event.target.value) }, ...options.map(([v, text]) => make("option", { value: v, textContent: text, selected: String(v) === String(value) }))));
  const ordered = full.map((id) => [id, names[id]]).sort((a, b) => a[1].localeCompare(b[1]));
  const [x, y] = sides(kind, ids);
  const unit = data.vectors.scale ** (kind === "composition" ? 3 : 2);
  const residual = x.map((v, k) => (v - y[k]) * unit), range = most(x.map((v, k) => Math.abs(v) + Math.abs(y[k]))) * unit;
  const minis = [...new Set(ids)].map((id) => {
    const parts = ["head", "tail"].map((part) => vector(part, id).map((v) => v * data.vectors.scale));
    return histogram(`${names[id]}: rᴴ, rᵀ grey`, parts, most([...parts[0], ...parts[1]]), [240, 110]);
  });
  if (kind === "subrelation") {
    const ratio = ["head", "tail"].map((part) => vector(part, ids[1]).map((v, k) => v / vector(part, ids[0])[k]).filter(Number.isFinite));
    minis.push(histogram("α = r₂ / r₁: heads, tails grey", ratio, 2, [240, 110]));
  }
  $("explorer").replaceChildren(
    select("pattern", kind, KINDS.map((k) => [k, k]), (k) => explore(k, ids)),
    ...ids.map((id, i) => select(slots > 1 ? `r${"₁₂₃"[i]}` : "r", id, ordered, (v) => explore(kind, ids.map((old, j) => (i === j ? Number(v) : old))))),
    histogram(`${data.formulas[kind]}   agreement ${fixed(agreement(kind, ids))}`, [residual], range),
    make("p", { className: "note", textContent: "A pattern that holds is a peak at 0. The axis is as wide as 98% of the two products, so that a peak is narrow beside them." }),
    make("div", { className: "minis" }, ...minis));
  patterns();
}
function comparison() {
  $("patterns-note").textContent = data.patterns_note;
  if (!data.comparison) {
    $("explorer").remove();
    $("comparison-title").remove();
    return;
  }
  const rows = KINDS.map((kind) => [kind, data.comparison[kind]]);
  $("comparison-table").append(table([{ text: "pattern", className: "text" }, "by vectors", "by triples", "by both", "precision", "recall"],
    rows.map(([kind, c]) => ({ cells: [left(kind), whole(c.found), whole(c.true), whole(c.both), fixed(c.precision, 2), fixed(c.recall, 2)] }))));
  $("comparison-note").textContent = data.comparison_note;
}

// --- map ---

const map = data.map;
let view = [];
function colours() {
  // For every point its colour, or null for the grey rest; and the legend.
  const by = $("map-colour").value, accent = getComputedStyle(document.body).getPropertyValue("--accent");
  if (by === "type") return [map.type.map((t) => (t === null ? null : PALETTE[t])), map.types.map((name, t) => [PALETTE[t], name])];
  if (by === "") return [map.x.map(() => accent), []];
  const both = new Array(map.x.length).fill(null), id = Number(by), values = map.tail_values[id];
  if (values) {
    map.heads[id].forEach((point, i) => { both[point] = values.of[i] === null ? null : PALETTE[values.of[i]]; });
    return [both, [["transparent", `heads of ${names[id]}, by tail:`], ...values.names.map((name, i) => [PALETTE[i], name])]];
  }
  for (const point of map.tails[id]) both[point] = PALETTE[1];
  for (const point of map.heads[id]) both[point] = both[point] ? PALETTE[2] : accent;
  return [both, [[accent, `heads of ${names[id]}`], [PALETTE[1], "tails"], [PALETTE[2], "both"]]];
}
function drawMap() {
  const canvas = $("map-canvas"), [width, height] = [canvas.clientWidth, canvas.clientHeight], ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const paint = canvas.getContext("2d");
  paint.scale(ratio, ratio);
  const scale = (values, size) => {
    const low = Math.min(...values), high = Math.max(...values);
    return (v) => 14 + ((v - low) / (high - low || 1)) * (size - 28);
  };
  const across = scale(map.x, width), down = scale(map.y, height);
  const [colour, legend] = colours(), wanted = $("map-text").value.toLowerCase();
  const grey = getComputedStyle(document.body).getPropertyValue("--line");
  view = map.x.map((x, i) => [across(x), height - down(map.y[i])]);
  for (const top of [false, true]) view.forEach(([x, y], i) => {
    if ((colour[i] !== null) !== top) return;
    paint.beginPath();
    paint.fillStyle = colour[i] ?? grey;
    paint.globalAlpha = top ? 0.8 : 1;
    paint.arc(x, y, top ? 3.4 : 2.4, 0, 7);
    paint.fill();
  });
  paint.globalAlpha = 1;
  paint.fillStyle = getComputedStyle(document.body).color;
  if (!wanted) nameEntities(paint, width, height, colour);
  paint.strokeStyle = paint.fillStyle;
  paint.font = "12px system-ui, sans-serif";
  paint.lineWidth = 1;
  if (wanted) map.name.map((name, i) => i).filter((i) => map.name[i].toLowerCase().includes(wanted)).slice(0, 30).forEach((i) => {
    paint.beginPath();
    paint.arc(...view[i], 6, 0, 7);
    paint.stroke();
    paint.fillText(map.name[i], view[i][0] + 8, view[i][1] + 4);
  });
  $("map-legend").replaceChildren(...legend.map(([paintOf, text]) => make("span", {}, make("i", { style: `background:${paintOf}` }), text)));
}
function nameEntities(paint, width, height, colour) {
  // Names of the most frequent entities that are coloured, each where there is room for it.
  const taken = [], halo = getComputedStyle($("map-canvas").parentNode.parentNode).backgroundColor;
  paint.font = "11px system-ui, sans-serif";
  paint.lineWidth = 3;
  paint.strokeStyle = halo;
  for (const i of map.labelled) {
    if (colour[i] === null || taken.length >= 60) continue;
    const text = map.name[i].length > 28 ? map.name[i].slice(0, 27) + "…" : map.name[i], size = paint.measureText(text).width;
    const x = view[i][0] + 6 + size < width ? view[i][0] + 6 : view[i][0] - 6 - size, y = view[i][1] + 4;
    const box = [x - 4, y - 13, x + size + 4, y + 5];
    if (x < 0 || y < 12 || y > height - 4 || taken.some((t) => box[0] < t[2] && t[0] < box[2] && box[1] < t[3] && t[1] < box[3])) continue;
    taken.push(box);
    paint.strokeText(text, x, y);
    paint.fillText(text, x, y);
  }
}
function hoverMap(event) {
  const box = event.target.getBoundingClientRect();
  let best = 144, at = -1;
  view.forEach(([x, y], i) => {
    const away = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2;
    if (away < best) [best, at] = [away, i];
  });
  if (at < 0) return hideTip();
  const kind = map.type && map.type[at] !== null ? `\n${map.types[map.type[at]]}` : "";
  return showTip(event, map.name[at] + kind);
}
function entities() {
  $("map-note").textContent = data.map_note;
  const options = [["", "nothing"], ...(map.types ? [["type", "type"]] : []), ...names.map((name, id) => [id, name])];
  $("map-colour").append(...options.map(([value, text]) => make("option", { value, textContent: text })));
  const size = names.map((_, id) => map.heads[id].length + (map.tail_values[id] ? map.x.length : 0)); // tails as colours say most
  $("map-colour").value = map.types ? "type" : String(size.indexOf(Math.max(...size)));
  $("map-colour").onchange = $("map-text").oninput = drawMap;
  $("map-canvas").addEventListener("pointermove", hoverMap);
  $("map-canvas").addEventListener("pointerleave", hideTip);
  addEventListener("resize", drawMap);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
  drawMap();
}

// --- one relation chosen everywhere ---

function choose(id) {
  chosenRelation = id;
  $("relation-text").value = $("relation-category").value = "";
  relations();
  const drawn = vectors && vectors.place.has(id);
  if (drawn) explore("symmetry", [id]);
  $("map-colour").value = String(id);
  drawMap();
  const jump = (text, target) => make("button", { className: "link", type: "button", textContent: text, onclick: () => {
    if (target === "relations") $("relations-table").querySelector("tr.at").scrollIntoView({ block: "center" });
    else $(target).scrollIntoView();
  } });
  $("chosen").replaceChildren(make("strong", { textContent: names[id] }), jump("row", "relations"),
    ...(drawn ? [jump("histogram", "explorer")] : []), jump("map", "map"),
    make("button", { className: "link", type: "button", textContent: "✕", ariaLabel: "Let go", onclick: () => {
      chosenRelation = null;
      $("chosen").hidden = true;
      relations();
    } }));
  $("chosen").hidden = false;
}

summary();
answers();
training();
metrics();
errors();
$("relation-category").append(...data.categories.map((c) => make("option", { value: c, textContent: c })));
$("relation-text").oninput = $("relation-category").onchange = relations;
relations();
comparison();
$("pattern-text").oninput = () => patterns();
if (vectors) explore(shownKind, data.patterns[shownKind]?.[0]?.ids ?? data.vectors.relations);
else patterns();
entities();
