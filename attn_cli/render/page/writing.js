// What a model wrote: a slider over its steps chooses the row from which each token came.
import { $, fill, share, word } from "./dom.js";
import { listen, record, select, state } from "./state.js";

export function startWriting() {
  if (!record.writing) return;
  const { first, steps } = record.writing;
  const slide = $("writing-step");
  $("writing").hidden = false;
  slide.max = String(steps.length - 1);
  slide.addEventListener("input", () => select(first + slide.valueAsNumber, null));
  listen(() => {
    const at = state.row - first;
    const step = steps[at];
    if (step) slide.value = String(at);
    const told = (step ?? []).flatMap(([token, chance], n) => [["", "; runners-up: ", ", "][Math.min(n, 2)], word(token), ` ${share(chance)}`]);
    const said = step ? [`${at + 1} of ${steps.length}: `, ...told] : ["No token was written from this row."];
    fill($("writing-says"), ...said);
    slide.setAttribute("aria-valuetext", $("writing-says").textContent);
  });
}
