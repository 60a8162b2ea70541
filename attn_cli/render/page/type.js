// Another sentence, typed in the place of the first: it is tokenized, looked up and attended to here, as attn self does it.
import { $, fill, make, visible } from "./dom.js";
import { change, listen, record, state } from "./state.js";
import { typed } from "./view.js";

const listed = (words) => words.slice(0, 12).map(visible).join(", ") + (words.length > 12 ? ", ..." : "");

/** Say what became of the sentence: why it was not taken, words that the page does not have, marks that were dropped. */
function remarks() {
  if (state.refused) return [state.refused];
  const found = typed();
  if (!found) return [];
  const said = [];
  if (found.unknown.length) {
    const done = { model: "its vector is made from its spelling, as for a word that attn does not know", skip: "left out", zero: "zeros stand in" };
    said.push(`Not among the ${record.vocabulary.words.length.toLocaleString("en")} words of this page: ${listed(found.unknown)} (${done[record.vocabulary.oov]}). attn self may know more.`);
  }
  if (found.dropped.length) said.push(`Dropped: ${[...new Set(found.dropped)].map(visible).join(" ")}`);
  return said;
}

/** Put a field in the place of the words, with their text to be typed over; or the words in the place of the field. */
function edit(isEdited) {
  for (const id of ["words", "type"]) $(id).hidden = isEdited;
  for (const id of ["sentence", "attend"]) $(id).hidden = !isEdited;
  if (!isEdited) return;
  $("sentence").value = state.text ?? record.command?.text ?? "";
  $("sentence").select();
}

function submit(event) {
  event.preventDefault();
  change({ text: $("sentence").value, row: 0, column: null, off: [], edits: new Map(), mask: state.mask === "given" ? "none" : state.mask });
  if (!state.refused) $("words").querySelector("[tabindex='0']").focus();
}

export function startTyping() {
  if (!record.vocabulary) {
    fill($("type-says"), make("p", {}, record.untyped));
    return;
  }
  $("type").hidden = false;
  $("type").addEventListener("click", () => edit(true));
  $("words").addEventListener("dblclick", () => edit(true));
  $("sentence").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    edit(false);
    $("type").focus();
  });
  $("type-form").addEventListener("submit", submit);
  $("own").addEventListener("click", () => change({ text: null, row: record.shown.row, column: null, off: [], edits: new Map() }));
  listen(() => {
    if (!state.refused) edit(false);
    $("own").hidden = state.text === null;
    if (state.text !== null && !state.refused) $("sentence").value = state.text;
    fill($("type-says"), ...remarks().map((text) => make("p", {}, text)));
  }, () => {});
}
