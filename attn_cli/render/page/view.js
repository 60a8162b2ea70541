// What the page shows now: the numbers that follow from the record and the reader's choice, computed when asked for.
import { matrix, numbers, rowOf, stored } from "./arrays.js";
import { attention, maskNamed, project } from "./core.js";
import { share } from "./dom.js";
import { Vocabulary } from "./lookup.js";
import { listen, record, state } from "./state.js";
import { tokenize } from "./tokenize.js";

const kept = new Map();
let sentence = null;
let vocabulary = null;

// Before every other view, so that none of them sees old numbers.
listen(() => kept.clear(), () => {});

/** Return the typed sentence: its tokens, X, and what the page does not know; null for the page's own. */
export function typed() {
  if (state.text === null || !record.vocabulary) return null;
  if (sentence?.text !== state.text) {
    vocabulary ||= new Vocabulary(record.vocabulary);
    const cut = tokenize(state.text, record.vocabulary.tokenizer, record.vocabulary.keepPunctuation);
    sentence = { text: state.text, dropped: cut.dropped, ...vocabulary.embed(cut.tokens) };
  }
  return sentence.tokens.length ? sentence : null;
}

export const queries = () => typed()?.tokens ?? record.queries;
export const keys = () => typed()?.tokens ?? record.keys;
export const layer = () => record.layers[state.layer];
export const headNamed = (name, at = state.layer) => record.layers[at].heads.find((head) => head.name === name);

/** Return the key under which a head's edited numbers are kept. */
export const editKey = (name, at = state.layer) => `${at}/${name}`;

/** Return which key each query may look at, (n_q n_k) of 1 and 0; null where all may. */
export function allowed(at = state.layer, head = null) {
  const n_q = queries().length;
  const n_k = keys().length;
  const hidden = new Set(state.off);
  if (!typed()) for (let j = record.padding[0]; j < record.padding[1]; j++) hidden.add(j);
  const its = state.mask === record.mask && !typed() && (head?.allowed || record.layers[at].allowed);
  if (state.mask === "none" && !hidden.size && !its) return null;
  const given = state.mask === "given" && !typed() ? numbers(record.allowed) : null;
  const own = its ? numbers(its) : given || maskNamed(state.mask, n_q, n_k);
  const may = own ? own.slice() : new Uint8Array(n_q * n_k).fill(1);
  for (const j of hidden) for (let i = 0; i < n_q && j < n_k; i++) may[i * n_k + j] = 0;
  return may;
}

/** Return X: of the typed sentence, or of the record's queries or keys; null where none is known. */
export function inputs(ofKeys = false, at = state.layer) {
  if (typed()) return typed().X;
  const { x, xKey } = record.layers[at];
  return stored(ofKeys ? xKey || x : x);
}

/** Return a head's q, k, v, and what it adds for a distance or was given to add. */
function ready(head, at) {
  const own = !typed() && head.q;
  const [R, b] = typed() || !head.distance ? [stored(head.R), stored(head.b)] : [null, null];
  const [bias, distance] = typed() ? [null, null] : [stored(head.bias), stored(head.distance)];
  const part = (name) => own ? stored(head[name]) : project(inputs(name !== "q", at), stored(head[`W_${name}`]), stored(head[`b_${name}`]));
  const edits = state.edits.get(editKey(head.name, at)) || {};
  const turned = head.q_turned && !edits.q && !edits.k ? { q: stored(head.q_turned), k: stored(head.k_turned) } : null;
  return { q: edits.q || part("q"), k: edits.k || part("k"), v: edits.v || part("v"), R, b, bias, distance, turned, softcap: head.softcap, sink: head.sink };
}

/** Tell whether a head's scores can be computed here: the page holds its numbers in full. */
export const isExact = (head) => Boolean(head) && (typed() !== null || !head.weights);

/** Return a head's attention, with every step where the page holds them, else its weights alone. */
export function headResult(name, at = state.layer) {
  const key = `${at}/${name}`;
  if (!kept.has(key)) kept.set(key, name === "mean" ? meanResult() : withNorms(headNamed(name, at), at));
  return kept.get(key);
}

/** Return a head's attention, and each weight times the length of what its value becomes, where that is known. */
function withNorms(head, at) {
  const result = computed(head, at);
  const { weights, v } = result;
  const isNew = typed() || state.edits.get(editKey(head.name, at))?.v;
  if (!record.norms || (isNew && record.norms.joined)) return result;
  const lengths = isNew ? [...Array(v.rows).keys()].map((j) => Math.hypot(...rowOf(v, j))) : numbers(head.lengths);
  return { ...result, norms: matrix(weights.rows, weights.columns, weights.data.map((w, n) => w * lengths[n % weights.columns])) };
}

function computed(head, at) {
  if (!isExact(head)) return { weights: given(head), allowed: allowed(at, head) };
  const parts = ready(head, at);
  const may = allowed(at, head);
  const scale = state.score === record.score ? head.scale ?? null : null;
  const biasTimes = record.tempers_distance ? record.temperature / state.temperature : 1; // the model's own, divided already
  const settings = { score: state.score, scale, temperature: state.temperature, biasTimes, allowed: may };
  const edits = state.edits.get(editKey(head.name, at));
  return { ...parts, ...attention(parts, settings, edits?.scores), allowed: may };
}

/** Return weights that came ready; what is switched off shows as masked, and the others as they came. */
function given(head) {
  const n_k = keys().length;
  const { columns, rows, data } = stored(head.weights);
  if (!head.levels) return matrix(rows, columns, data);
  const tops = numbers(head.tops);
  return matrix(rows, columns, Float64Array.from(data, (x, at) => (x / head.levels) * tops[Math.floor(at / n_k)]));
}

function meanResult() {
  const parts = layer().heads.map((head) => headResult(head.name));
  const add = (name) => {
    const all = parts.map((part) => part[name]);
    if (all.some((one) => !one || one.columns !== all[0].columns)) return null;
    return matrix(all[0].rows, all[0].columns, all[0].data.map((_, at) => all.reduce((sum, one) => sum + one.data[at], 0) / all.length));
  };
  return { weights: add("weights"), norms: add("norms"), output: add("output"), allowed: allowed() };
}

/** Return the shown head's attention. */
export const shown = () => headResult(state.head);

/** Tell whether query i may look at key j. */
export function mayLook(result, i, j) {
  return !result.allowed || result.allowed[i * keys().length + j] === 1;
}

/** Return the row and the column looked at, inside what there is. */
export function place() {
  const row = Math.min(state.row, queries().length - 1);
  const result = shown();
  const column = state.column !== null && state.column < keys().length ? state.column : strongest(result.weights, row);
  return { row, column };
}

/** Return the key with a row's largest weight. */
export function strongest(weights, row) {
  const numbersOfRow = rowOf(weights, row);
  return numbersOfRow.reduce((best, weight, j) => (weight > numbersOfRow[best] ? j : best), 0);
}

/** Return one row's way to its weights: the exps of its scores, the shift before them, and their sum. */
export function exps(result, row) {
  const sums = rowOf(result.summed, row);
  const may = [...sums].map((_, j) => mayLook(result, row, j));
  const sink = result.sink ?? -Infinity;
  const largest = Math.max(...[...sums].filter((_, j) => may[j]), sink);
  const shift = Math.abs(largest) > 30 && Number.isFinite(largest) ? largest : 0;
  const made = [...sums].map((s, j) => (may[j] ? Math.exp(s - shift) : 0));
  return { exps: made, shift, total: made.reduce((sum, e) => sum + e, Math.exp(sink - shift)) };
}

/** Say what a sink takes of a row. */
export function sunk(result, row) {
  if (result.sink == null) return "";
  return ` The sink takes ${share(1 - rowOf(result.weights, row).reduce((sum, w) => sum + w, 0))}; the words share the rest.`;
}
