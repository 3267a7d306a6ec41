// What stands beside an answer: its probability with the base rate, and what the graph says of it.
import { fixed, make, shareBar, tag } from "./charts.js";

export function probability(answer) {
  // A bar with its number and a mark at the base rate, whose number is in `baseNote`; the score where nothing is calibrated.
  if (answer.probability === null || answer.probability === undefined)
    return tag("span.chance", tag("span.soft", `score ${fixed(answer.score, 2)}`));
  const { probability: p, base_rate: base } = answer;
  const bar = shareBar(p, base);
  bar.setAttribute("aria-hidden", "true");
  return tag(
    "span.chance",
    bar,
    tag("span.hidden-text", `probability ${fixed(p, 2)}, base rate ${fixed(base, 2)}`),
  );
}
export function weighed(answer, opener) {
  // The probability of an answer and the button that says why; they stay together on a narrow screen.
  return tag("span.weighed", probability(answer), opener);
}
export const measure = (value) => fixed(value, Math.abs(value) >= 100 ? 1 : 3);
const SPLITS = { train: "known", valid: "known, held out for validation", test: "known, held out for testing" };
export function mark(split, always = false) {
  // What the graph says of an answer. Facts of train need no mark where all are known.
  if (!split || (split === "train" && !always)) return null;
  return make("span", {
    className: "mark",
    textContent: split === "train" ? "known" : split,
    title: SPLITS[split] ?? split,
  });
}
export function baseNote(...answers) {
  // What the marks in the bars are: the same for all answers of a run; and why some have none.
  const base = answers[0].base_rate;
  if (base === null) return "The run has no calibration, so answers have scores and no probabilities.";
  const without = answers.filter(({ probability: p }) => p === null).length;
  const newer = "Answers about an entity that came after the training have scores and no probabilities.";
  if (without === answers.length) return newer;
  return `${without ? `${newer} ` : ""}The mark in a bar is the base rate, ${fixed(base, 2)}: the probability of a new answer of this run before its score is looked at.`;
}
