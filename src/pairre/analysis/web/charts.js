// Tables and figures of every page, from plain values. Names reach a page as text only, never as HTML.
// The explorer imports this module; the report, which is one file, carries it without its exports.
export const $ = (id) => document.getElementById(id);

// --- small helpers ---

export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
export function tag(selector, ...children) {
  // An element by its name and classes, such as "p.note", with nodes and texts in it.
  const [name, ...classes] = selector.split(".");
  return make(name, { className: classes.join(" ") }, ...children);
}
export function draw(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
export const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));
export const whole = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
export const short = (value) => (Math.abs(value) >= 1e4 ? short(value / 1000) + "k" : String(Number(value.toPrecision(6))));

export function table(head, rows, groups = null) {
  // Cells are text, numbers already formatted, or nodes; a row may be {cells, className, onclick}.
  const headRow = (cells) => make("tr", {}, ...cells.map((c) =>
    c instanceof Node ? c : make("th", { textContent: c.text ?? c, colSpan: c.span ?? 1, className: c.className ?? "" })));
  const body = rows.map((row) => {
    const tr = make("tr", { className: row.className ?? "" }, ...row.cells.map((cell) =>
      make("td", { className: cell.className ?? "" }, cell.node ?? cell.text ?? cell)));
    if (row.onclick) tr.addEventListener("click", row.onclick);
    return tr;
  });
  return make("table", {}, make("thead", {}, groups && headRow(groups), headRow(head)), make("tbody", {}, ...body));
}
export const left = (content) => ({ [content instanceof Node ? "node" : "text"]: content, className: "text" });

export function tip(node, text) {
  node.addEventListener("pointermove", (event) => showTip(event, text));
  node.addEventListener("pointerleave", hideTip);
  return node;
}
export function showTip(event, text) {
  const box = $("tip");
  box.textContent = text;
  box.hidden = false;
  box.style.left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8) + "px";
  box.style.top = Math.max(4, event.clientY - box.offsetHeight - 10) + "px";
}
export const hideTip = () => { $("tip").hidden = true; };

// --- figures ---

export function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(v);
  return found;
}
export function frame(width, height, x, y) {
  // x and y are [low, high]; a missing y axis leaves out its labels. Returns the picture and the two scales.
  const pad = { left: y ? 44 : 6, right: 8, top: 8, bottom: 22 };
  const across = (v) => pad.left + ((v - x[0]) / (x[1] - x[0] || 1)) * (width - pad.left - pad.right);
  const [low, high] = y ?? [0, 1];
  const up = (v) => height - pad.bottom - ((v - low) / (high - low || 1)) * (height - pad.top - pad.bottom);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const v of y ? ticks(low, high, 4) : []) {
    picture.append(draw("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: up(v), y2: up(v) }));
    picture.append(draw("text", { x: pad.left - 6, y: up(v) + 4, "text-anchor": "end" }, short(v)));
  }
  for (const v of ticks(x[0], x[1], Math.max(2, Math.floor(width / 90))))
    picture.append(draw("text", { x: across(v), y: height - 6, "text-anchor": "middle" }, short(v)));
  return { picture, across, up, height: height - pad.bottom };
}
export function captioned(caption, picture) {
  picture.setAttribute("aria-label", caption);
  return make("figure", {}, make("figcaption", { textContent: caption }), picture);
}
export function lineFigure(caption, points) {
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const span = [Math.min(0, ...ys), Math.max(...ys, 1e-9)];
  const { picture, across, up } = frame(520, 220, [Math.min(...xs), Math.max(...xs)], span);
  picture.append(draw("path", { class: "line", d: "M" + points.map((p) => `${across(p[0])},${up(p[1])}`).join("L") }));
  for (const [x, y] of points) {
    if (points.length < 40) picture.append(draw("circle", { class: "dot", cx: across(x), cy: up(y), r: 3 }));
    picture.append(tip(draw("circle", { class: "hit", cx: across(x), cy: up(y), r: 9 }), `step ${whole(x)}\n${fixed(y, 4)}`));
  }
  return captioned(caption, picture);
}
export function histogram(caption, series, range, size = [520, 210]) {
  // Overlaid series of numbers; what lies outside of the range is counted in the outermost bins.
  const bins = size[0] > 300 ? 61 : 31, width = (2 * range) / bins;
  const counts = series.map((values) => {
    const count = new Array(bins).fill(0);
    for (const v of values) count[Math.max(0, Math.min(bins - 1, Math.floor((v + range) / width)))] += 1;
    return count;
  });
  return countsFigure(caption, counts, [-range, range], size);
}
export function countsFigure(caption, counts, [from, to], size = [520, 210]) {
  // Overlaid series of counts, each of as many bins of equal width between two numbers.
  const width = (to - from) / counts[0].length, high = Math.max(...counts.flat(), 1);
  const { picture, across, up, height } = frame(...size, [from, to], size[0] > 300 ? [0, high] : null);
  const top = (c) => (size[0] > 300 ? up(c) : up(c / high));
  const styles = counts.length > 1 ? ["bar", "bar other"] : ["bar"];
  counts.forEach((count, s) => count.forEach((c, b) => {
    const start = from + b * width;
    const bar = { class: styles[s], x: across(start), y: top(c), width: across(start + width) - across(start), height: height - top(c) };
    if (c) picture.append(tip(draw("rect", bar), `${fixed(start)} to ${fixed(start + width)}\n${whole(c)} features`));
  }));
  if (from <= 0 && to >= 0) picture.append(draw("line", { class: "zero", x1: across(0), x2: across(0), y1: 8, y2: height }));
  return captioned(caption, picture);
}
export function reliabilityFigure(caption, bins) {
  // bins: [mean probability, share that is true, count] in ascending order; a hollow dot stands for few.
  const { picture, across, up } = frame(420, 300, [0, 1], [0, 1]);
  picture.append(draw("line", { class: "zero", x1: across(0), y1: up(0), x2: across(1), y2: up(1) }));
  picture.append(draw("text", { x: across(0.75), y: 294, "text-anchor": "middle" }, "probability"));
  picture.append(draw("path", { class: "line", d: "M" + bins.map(([p, share]) => `${across(p)},${up(share)}`).join("L") }));
  for (const [p, share, count] of bins) {
    const dot = { class: count < 30 ? "dot soft" : "dot", cx: across(p), cy: up(share), r: Math.min(9, 2.5 + Math.log10(count) * 1.6) };
    picture.append(tip(draw("circle", dot), `probability ${fixed(p)}\ntrue ${fixed(share)}\n${whole(count)} answers`));
  }
  return captioned(caption, picture);
}
export function shareBar(value, baseRate = null) {
  // A probability as a bar with its number, and a mark where the base rate is.
  const bar = make("i");
  bar.style.width = `${100 * value}%`;
  const mark = baseRate === null ? null : make("s");
  if (mark) mark.style.left = `${100 * baseRate}%`;
  return make("span", { className: "share" }, bar, mark, make("b", { textContent: value.toFixed(2) }));
}
