// Parts of an answer that the server still computes when it has just started.
import { pause } from "./api.js";
import { make, tag } from "./charts.js";

const PAUSE = 0.7; // seconds

export async function whenPrepared(part, found, again, signal, place) {
  // Asks again until a part is there, and shows meanwhile how far it is.
  let latest = found;
  for (;;) {
    const left = latest.preparing.find((one) => one.part === part);
    if (!left) return latest;
    place.replaceChildren(progress(left.done));
    await pause(PAUSE, signal);
    latest = await again();
  }
}
export function progress(done) {
  const bar = make("progress", { max: 1, value: done, ariaLabel: "Computed" });
  return tag(
    "div.preparing",
    bar,
    tag("span.note", `The server has just started; this is being computed (${Math.round(100 * done)}%).`),
  );
}
