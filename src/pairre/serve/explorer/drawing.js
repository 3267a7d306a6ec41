// The neighbourhood of an entity: what points at it on the left, what it points at on the right, by relation.
// Known facts are solid lines, predicted ones dashed. Every entity is a button that walks there.
import { get, runPath } from "./api.js";
import { draw, fixed, hideTip, make, tag, tip } from "./charts.js";
import { clipped, entity } from "./names.js";
import { announce, empty, failure, skeleton } from "./parts.js";

const ROW = 24; // pixels that an entity takes
const GAP = 8; // between groups
const NARROW = 480; // a picture that is less wide has all in one column
const SMALL = 11; // sizes of text
const LARGE = 12.5;
const MOST = 24; // entities

export function neighbourhood(start, { run, signal }) {
  // Returns a figure that shows the entity, and then those that are walked to.
  const picture = tag("div.drawing");
  const trail = tag("ol.trail");
  const figure = tag(
    "figure",
    tag("figcaption.hidden-text", "Neighbourhood"),
    picture,
    tag("p.legend", key("known"), key("predicted")),
    trail,
  );
  let path = [start];
  let shown = null;
  async function walk(ref, { focus = true } = {}) {
    if (!picture.hasChildNodes()) picture.append(skeleton(8));
    try {
      const found = await get(runPath(run, "neighbourhood"), { name: ref.name, limit: MOST }, { signal });
      shown = { ref, found };
      paint();
      if (focus) {
        picture.querySelector("g.middle")?.focus();
        announce(`${clipped(ref.shown)}: ${found.edges.length} links drawn`);
      }
    } catch (error) {
      if (error.name !== "AbortError") picture.replaceChildren(failure(error, { again: () => walk(ref) }));
    }
  }
  function go(ref) {
    hideTip();
    const before = path.findIndex((one) => one.name === ref.name);
    path = before >= 0 ? path.slice(0, before + 1) : [...path, ref];
    return walk(ref);
  }
  function paint() {
    const width = picture.clientWidth || 420;
    picture.replaceChildren(
      shown.found.edges.length
        ? chart(shown, width, go)
        : empty("Nothing is known of it, and nothing is likely enough to be drawn."),
    );
    trail.hidden = path.length < 2;
    trail.replaceChildren(
      ...path.map((ref, i) =>
        tag(
          "li",
          i === path.length - 1
            ? tag("span", entity(ref, 26), tag("span.soft", " (open its page)"))
            : make("button", {
                type: "button",
                className: "link",
                textContent: clipped(ref.shown, 22),
                onclick: () => go(ref),
              }),
        ),
      ),
    );
  }
  let before = 0;
  const sized = new ResizeObserver(([{ contentRect }]) => {
    if (shown && Math.abs(contentRect.width - before) > 8) paint();
    before = contentRect.width;
  });
  sized.observe(picture);
  signal.addEventListener("abort", () => sized.disconnect(), { once: true });
  walk(start, { focus: false });
  return figure;
}
function key(what) {
  const line = draw(
    "svg",
    { viewBox: "0 0 28 8", class: "key", "aria-hidden": "true" },
    draw("path", { class: `edge ${what}`, d: "M0 4H28" }),
  );
  return tag("span", line, what);
}

// --- the layout ---

function columns(name, { nodes, edges }) {
  // For both sides, groups of a relation with the entities at its other ends; an entity stands once.
  const refs = new Map(nodes.map(({ ref }) => [ref.name, ref]));
  const placed = new Set([name]);
  const sides = { left: [], right: [] };
  for (const edge of [...edges].sort((a, b) => a.predicted - b.predicted)) {
    const out = edge.head === name;
    if (!out && edge.tail !== name) continue;
    const other = refs.get(out ? edge.tail : edge.head);
    if (!other || placed.has(other.name)) continue;
    placed.add(other.name);
    const side = sides[out ? "right" : "left"];
    let group = side.find(({ relation }) => relation.name === edge.relation.name);
    if (!group) side.push((group = { relation: edge.relation, rows: [] }));
    group.rows.push({ ref: other, edge });
  }
  const all = new Map();
  for (const edge of edges) {
    const other = edge.head === name ? edge.tail : edge.head;
    if (edge.head === name || edge.tail === name) all.set(other, [...(all.get(other) ?? []), edge]);
  }
  return { ...sides, all };
}
const tall = (groups) => groups.reduce((sum, { rows }) => sum + GAP + rows.length * ROW, 0);

function chart({ ref, found }, width, go) {
  const { left, right, all } = columns(ref.name, found);
  const narrow = width < NARROW;
  const place = narrow ? treeLayout(width, [right, left]) : wingLayout(width, ref, [right, left]);
  const svg = draw("svg", {
    viewBox: `0 0 ${width} ${place.height}`,
    width,
    height: place.height,
    class: "neighbourhood",
    role: "group",
    "aria-label": `What ${clipped(ref.shown, 60)} is linked with`,
  });
  const lines = draw("g", { "aria-hidden": "true" });
  const stops = [];
  for (const { groups, start, incoming, toRight, label, x, room } of place.wings) {
    let y = start;
    for (const { relation, rows } of groups) {
      y += GAP;
      rows.forEach(({ ref: other, edge }, i) => {
        const at = { x, y: y + ROW / 2, toRight, room, predicted: edge.predicted };
        lines[edge.predicted ? "prepend" : "append"](
          draw("path", { class: edge.predicted ? "edge predicted" : "edge known", d: place.path(at, label) }),
        );
        if (i === 0)
          lines.append(between(relation, narrow && incoming, { ...at, x: label, room: Math.abs(x - label) }));
        stops.push(
          stop(
            other,
            at,
            all.get(other.name).map((one) => told(one, ref, other)),
            go,
          ),
        );
        y += ROW;
      });
    }
  }
  const hub = middleNode(ref, place.hub);
  svg.append(lines, hub, ...stops);
  steer(svg, [hub, ...stops]);
  return svg;
}
function between(relation, backwards, { x, y, room, toRight }) {
  // The name of a relation on the first line of its group.
  const text = fitted(backwards ? `← ${relation.shown}` : relation.shown, room - 16, SMALL);
  const anchor = toRight ? "start" : "end";
  const label = draw("text", { class: "between", x: toRight ? x + 6 : x - 6, y: y + 4, "text-anchor": anchor }, text);
  return tip(label, clipped(relation.shown, 200));
}
function treeLayout(width, [right, left]) {
  // For a narrow place: the entity at the top, everything else below a trunk. `label` is where a relation begins.
  const hub = { x: 0, y: 18, room: width - 20, anchor: "start" };
  const start = 38;
  const longest = Math.max(...[...right, ...left].map(({ relation }) => wide(clipped(relation.shown, 60), SMALL)));
  const x = Math.max(90, Math.min(width * 0.54, 70 + longest));
  const wing = { toRight: true, label: 24, x, room: width - x - 4 };
  return {
    hub,
    height: start + tall(right) + tall(left) + 8,
    wings: [
      { ...wing, groups: right, start, incoming: false },
      { ...wing, groups: left, start: start + tall(right), incoming: true },
    ],
    path: (to) => `M14 ${hub.y + 14}V${to.y - 9}Q14 ${to.y} 23 ${to.y}H${to.x - 9}`,
  };
}
function wingLayout(width, ref, [right, left]) {
  // For a wide place: the entity in the middle, what points at it on the left, what it points at on the right.
  const height = Math.max(120, tall(right), tall(left)) + 12;
  const half = Math.min(90, width * 0.11);
  const wing = width / 2 - half;
  const middle = left.length && right.length ? width / 2 : left.length ? width - half : half;
  const hub = { x: middle, y: height / 2, room: 2 * half, anchor: "middle" };
  const between = Math.min(150, wing * 0.34);
  const name = Math.min(220, wing * 0.46);
  const bend = Math.min(70, wing - between - name);
  const of = (groups, toRight) => {
    const label = toRight ? middle + half + bend : middle - half - bend;
    return {
      groups,
      toRight,
      incoming: !toRight,
      label,
      x: toRight ? label + between : label - between,
      room: name,
      start: (height - tall(groups)) / 2,
    };
  };
  return {
    hub,
    height,
    wings: [of(right, true), of(left, false)],
    path: (to, label) => {
      const turn = (middle + label) / 2;
      return `M${middle} ${hub.y}C${turn} ${hub.y} ${turn} ${to.y} ${label} ${to.y}H${to.toRight ? to.x - 9 : to.x + 9}`;
    },
  };
}
function told({ head, relation, predicted, probability }, ref, other) {
  // A link as a sentence.
  const [from, to] = head === ref.name ? [ref, other] : [other, ref];
  const sentence = [from, relation, to].map(({ shown }) => clipped(shown, 50)).join(" ");
  return predicted ? `${sentence} (likely${probability === null ? "" : `, ${fixed(probability, 2)}`})` : sentence;
}
let ruler = null;
function wide(text, size, weight = "") {
  // How many pixels a line of text takes.
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}
function fitted(text, room, size, weight) {
  // As much of a text as there is room for.
  let most = Math.min(text.length, Math.ceil(room / 3));
  while (most > 3 && wide(clipped(text, most), size, weight) > room) most -= 1;
  return clipped(text, most);
}

function node(className, label, ...children) {
  return draw("g", { class: className, tabindex: -1, role: "button", "aria-label": label }, ...children);
}
function stop(ref, { x, y, toRight, room, predicted }, about, go) {
  const label = `${clipped(ref.shown, 120)}: ${about.join("; ")}. Walk there`;
  const found = node(
    predicted ? "stop predicted" : "stop known",
    label,
    draw("rect", {
      class: "hit",
      x: toRight ? x - 12 : x - room,
      y: y - ROW / 2,
      width: room + 12,
      height: ROW,
      rx: 6,
    }),
    draw("circle", { cx: toRight ? x - 4 : x + 4, cy: y, r: 4.5 }),
    draw(
      "text",
      { x: toRight ? x + 6 : x - 6, y: y + 4, "text-anchor": toRight ? "start" : "end" },
      fitted(ref.shown, room - 10, LARGE),
    ),
  );
  found.addEventListener("click", () => go(ref));
  return tip(found, [clipped(ref.shown, 200), ...about].join("\n"));
}
function middleNode(ref, { x, y, room, anchor }) {
  const text = fitted(ref.shown, room - 24, LARGE, 600);
  const width = wide(text, LARGE, 600) + 24;
  const from = anchor === "middle" ? x - width / 2 : x;
  return node(
    "middle",
    `${clipped(ref.shown, 120)}, in the middle`,
    draw("rect", { x: from, y: y - 15, width, height: 30, rx: 15 }),
    draw("text", { x: from + width / 2, y: y + 4, "text-anchor": "middle" }, text),
  );
}
function steer(svg, all) {
  // One of the nodes takes part in the order of Tab; the arrow keys walk through the others.
  const at = (i) => all.forEach((one, j) => one.setAttribute("tabindex", i === j ? 0 : -1));
  at(0);
  svg.addEventListener("focusin", (event) => at(all.indexOf(event.target.closest("g[role]"))));
  svg.addEventListener("keydown", (event) => {
    const i = all.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (i < 0) return;
    if (step || event.key === "Home" || event.key === "End") {
      event.preventDefault();
      const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : (i + step + all.length) % all.length;
      all[to].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      all[i].dispatchEvent(new MouseEvent("click"));
    }
  });
}
