// Names from outside: shown as text, clipped, each in its own direction, and as links to their pages.
import { make, tag, whole } from "./charts.js";
import { entityLink, relationLink } from "./route.js";

const MOST_SHOWN = 90; // characters of a name in a line
const MOST_TOLD = 600; // and in its tooltip

// Control characters, and those that change the direction of text or break a line: a name could pretend to be another.
const HIDDEN = /[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb]|\p{Surrogate}/gu;
export function visible(text) {
  // The text with escapes in place of hidden characters, as the command line shows it.
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    return (
      { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[found] ??
      (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`)
    );
  });
}
export function clipped(text, most = MOST_SHOWN) {
  // The beginning of a text, in whole characters, so that an emoji is not cut in half.
  if (text.length <= most) return visible(text);
  return (
    visible(
      [...text.slice(0, 2 * most)]
        .slice(0, most - 1)
        .join("")
        .trimEnd(),
    ) + "…"
  );
}
export function name(ref, most = MOST_SHOWN) {
  // A name that keeps its own direction, whatever stands beside it.
  const node = tag("bdi", clipped(ref.shown, most));
  if (ref.shown.length > most) node.title = clipped(ref.shown, MOST_TOLD);
  return node;
}
const named = (address) => (ref, most) => make("a", { href: address(ref), className: "name" }, name(ref, most));
export const entity = named(entityLink);
export const relation = named(relationLink);
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;
export const spaced = (...nodes) => nodes.flatMap((node, i) => (i ? [" ", node] : [node]));

export function sentence(triple, most = 48) {
  // A triple as a line; what is open is a question mark.
  const part = (ref, show, className) => make("span", { className }, ref ? show(ref, most) : tag("b.open", "?"));
  return tag(
    "span.triple",
    ...spaced(
      part(triple.head, entity, "end"),
      part(triple.relation, relation, "between"),
      part(triple.tail, entity, "end"),
    ),
  );
}
export const inWords = ({ head, relation: between, tail }) =>
  [head, between, tail].map((ref) => (ref ? clipped(ref.shown, 60) : "?")).join(" ");

export const kind = (ref) =>
  ref.type
    ? make("span", { className: "kind", textContent: clipped(ref.type, 40), title: clipped(ref.type, MOST_TOLD) })
    : null;
