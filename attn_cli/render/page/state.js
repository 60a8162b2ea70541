// What the reader has chosen: one object. Views ask to be told when it changes, and a link holds all of it.
import { packed, unpack } from "./arrays.js";
import { ruleNamed } from "./core.js";
import { tokenize } from "./tokenize.js";

/** The record of the computation, as Python wrote it. */
export const record = JSON.parse(document.getElementById("record").textContent);

/** Everything that can be chosen; `row` and `column` are the cell looked at, `step` what the matrix shows. */
export const state = {
  text: null, // a sentence that was typed in; null is the page's own
  refused: "", // why the page did not take another one
  layer: record.shown.layer, // its place among record.layers
  head: record.writing?.head ?? record.shown.head,
  linked: [], // further heads whose links are drawn
  row: record.writing?.first ?? record.shown.row,
  column: null,
  step: record.norms ? "norms" : "weights",
  walking: false,
  overview: record.layers.length > 1 && !record.writing, // all layers by heads, before one of them is opened
  temperature: record.temperature,
  score: record.score,
  mask: record.mask,
  off: record.off, // keys that are hidden from every query, by their places
  edits: new Map(), // by layer and head: {q, k, v, scores}
};
const usual = { ...state };

const onChange = [];
const onSelect = [];

/** Be told of every change, and of every change of the cell that is looked at. */
export function listen(changed, selected = changed) {
  onChange.push(changed);
  onSelect.push(selected);
}

/** Change some of what is chosen, and let all views show it; a text that the page does not take changes nothing else.
 *  A layer that is packed is unpacked first: then a promise of the change is returned. */
export function change(parts) {
  const missing = packed(arraysOf(parts.layer ?? state.layer));
  if (missing.length) return unpack(missing).then(() => change(parts));
  const refused = typeof parts.text === "string" ? whyRefused(parts.text) : "";
  Object.assign(state, refused ? { refused } : { ...parts, refused });
  for (const tell of onChange) tell();
  remember();
  return undefined;
}

/** Return the arrays that a layer is drawn from and that may be packed. */
export function arraysOf(at) {
  const { allowed, heads } = record.layers[at];
  return [record.allowed, allowed, ...heads.flatMap((head) => [head.weights, head.allowed])];
}

/** Return why the page does not take a text, wherever it comes from; nothing where it does. */
function whyRefused(text) {
  const { tokenizer, keepPunctuation, most } = record.vocabulary;
  const count = tokenize(text, tokenizer, keepPunctuation).tokens.length;
  return !count ? "There is no word in it: type some." : count > most ? `${count.toLocaleString("en")} words are too many: the page takes ${most}.` : "";
}

/** Look at a cell. */
export function select(row, column) {
  if (state.row === row && state.column === column) return;
  state.row = row;
  state.column = column;
  for (const tell of onSelect) tell();
  remember();
}

/** Go back to what the page opened with. */
export function reset() {
  change({ ...usual, edits: new Map() });
}

// The link

/** Return the part of a link after `#` that opens this view again: what is not as usual. */
export function hash() {
  const parts = new URLSearchParams();
  if (usual.overview && !state.overview) parts.set("view", "head");
  if (state.walking) parts.set("step", String(record.steps.findIndex((step) => step.name === state.step) + 1));
  else if (state.step !== usual.step) parts.set("show", state.step);
  if (state.layer !== usual.layer) parts.set("layer", String(record.layers[state.layer].number));
  if (state.head !== usual.head) parts.set("head", state.head);
  for (const name of ["score", "mask", "text"]) if (state[name] !== usual[name]) parts.set(name, state[name]);
  if (state.temperature !== usual.temperature) parts.set("t", String(state.temperature));
  if (state.off.join() !== usual.off.join()) parts.set("without", state.off.join(","));
  if (state.linked.length) parts.set("links", JSON.stringify(state.linked));
  if (state.row !== usual.row || state.walking) parts.set("q", named(state.row));
  if (state.column !== null) parts.set("k", String(state.column));
  return parts.toString();
}

/** Return a query as `-q` takes it: the token where there is one of it, else its place. */
function named(row) {
  const tokens = state.text === null ? record.queries : [];
  const token = tokens[row];
  return token !== undefined && tokens.filter((one) => one === token).length === 1 ? token : String(row);
}

/** Return what a link chooses; what the page does not have is left out. */
export function chosenBy(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const chosen = { ...usual, edits: new Map() };
  chosen.overview &&= !["view", "step", "show", "layer", "head", "q", "k"].some((name) => parts.has(name));
  const layer = record.layers.findIndex((one) => String(one.number) === parts.get("layer"));
  if (layer >= 0) chosen.layer = layer;
  const heads = [...record.layers[chosen.layer].heads.map((head) => head.name), "mean"];
  if (heads.includes(parts.get("head"))) chosen.head = parts.get("head");
  chosen.linked = list(parts.get("links")).filter((name) => heads.includes(name));
  if (record.scored && Object.hasOwn(record.scores, parts.get("score"))) chosen.score = parts.get("score");
  if (record.scored && isMask(parts.get("mask"))) chosen.mask = parts.get("mask");
  const t = Number(parts.get("t"));
  if (record.scored && t >= 1e-6 && Number.isFinite(t)) chosen.temperature = t;
  if (record.vocabulary && parts.get("text")) chosen.text = parts.get("text");
  if (parts.get("without") !== null) chosen.off = parts.get("without").split(",").filter((one) => /^\d{1,6}$/.test(one)).map(Number);
  const steps = record.steps.map((step) => step.name);
  const at = Number(parts.get("step") ?? NaN) - 1; // steps count from 1, as the page shows them
  if (steps[at]) Object.assign(chosen, { walking: true, step: steps[at] });
  else if ([...steps, record.norms && "norms"].includes(parts.get("show"))) chosen.step = parts.get("show");
  if (parts.get("q") !== null) chosen.row = placeOf(parts.get("q"), chosen.row);
  if (/^\d{1,6}$/.test(parts.get("k") || "")) chosen.column = Number(parts.get("k"));
  return chosen;
}

function list(text) {
  try {
    const found = JSON.parse(text || "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/** Tell whether a mask's name is one that the page can compute. */
export function isMask(name) {
  return Boolean(ruleNamed(name || "")) || (name === "given" && record.allowed);
}

function placeOf(query, usually) {
  const at = record.queries.indexOf(query);
  return at >= 0 ? at : /^\d{1,6}$/.test(query) ? Number(query) : usually;
}

let timer = 0;

/** Put the choice into the address bar, once it rests: browsers refuse too many changes a second. */
function remember() {
  if (location.protocol === "about:") return; // within another page, as in a notebook: there is no address bar
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, "", `#${hash()}`), 200);
}
