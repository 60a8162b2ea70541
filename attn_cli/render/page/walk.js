// The walk: the steps of attn explain beside the matrix, with the numbers as they are now.
import { rowOf } from "./arrays.js";
import { $, make, plain, refill, share, visible } from "./dom.js";
import { stepMatrix } from "./matrix.js";
import { change, listen, record, state } from "./state.js";
import { inputs, keys, mayLook, place, queries, shown, strongest, sunk } from "./view.js";

/** Return the steps that there are numbers for. */
export function steps() {
  return record.steps.filter((step) => stepMatrix(step.name));
}

const MOST_NAMED = 12;
const quoted = (token) => `"${visible(token)}"`;

/** Return a token in quotes, with its place where it stands more than once. */
function quotedAt(tokens, at) {
  return tokens.indexOf(tokens[at]) === tokens.lastIndexOf(tokens[at]) ? quoted(tokens[at]) : `${quoted(tokens[at])} (${at})`;
}

function scaling() {
  const root = record.scores[state.score].isScaled ? ` / √${shown().q.columns}` : "";
  return `scores${root}${state.temperature === 1 ? "" : ` / ${plain(state.temperature)}`}`;
}

function effect() {
  if (state.temperature !== 1) return "a temperature below 1 sharpens the softmax, above 1 flattens it";
  const root = Math.sqrt(shown().q.columns);
  if (!record.scores[state.score].isScaled || root === 1) return "nothing is divided: the scores go to the softmax as they are";
  return `all are divided by the same ${plain(root)}: the order stays, the weights come closer together`;
}

/** Return what stands in the braces of a step's formula and sentence. */
function facts(name) {
  const { row } = place();
  const result = shown();
  const unmasked = result.position ? "scaled + distance" : "scaled";
  const before = result.allowed ? "masked" : unmasked;
  const same = { ...record.facts, tokens: `${queries().length} tokens`, distinct: new Set(queries()).size, d: inputs()?.columns ?? 0,
    query: quoted(queries()[row]), compare: `${record.scores[state.score].matrix}, every query with every key`, scaling: result.q ? scaling() : "", unmasked,
    before, total: result.sink == null ? `row sum of exp(${before})` : `(row sum of exp(${before}) + exp(sink))`, sunk: sunk(result, row) };
  if (name === "x_query") return { ...same, first: plain(inputs().data[row * inputs().columns], 3), source: record.sources[queries()[row]] ?? "its vector is on this page" };
  if (["q", "k", "v"].includes(name)) return { ...same, ...projected(result, name, row) };
  if (name === "masked_scores") return { ...same, masking: masking(result, row) };
  return result.scores ? { ...same, ...peak(result, name, row) } : same;
}

function projected(result, name, row) {
  const at = name === "q" || record.repeats.includes(name) ? row : strongest(result.weights, row);
  return { key: quoted((name === "q" ? queries() : keys())[at]), first: [...rowOf(result[name], at).slice(0, 3)].map((x) => plain(x, 3)).join(", ") };
}

function masking(result, row) {
  if (!result.allowed) return "No mask: every query may look at every key.";
  const free = [...keys().keys()].filter((j) => mayLook(result, row, j));
  if (!free.length) return `${quoted(queries()[row])} may look at nothing.`;
  const names = free.map((j) => quotedAt(keys(), j));
  if (names.length > MOST_NAMED) names.splice(6, names.length - 10, "...");
  return `${quotedAt(queries(), row)} may look at ${names.join(", ")} (${free.length} of ${keys().length}).`;
}

/** Return the row's largest number at a step, and its key. */
function peak(result, name, row) {
  const ranking = { scores: result.scores, scaled_scores: result.scores }[name] || result.weights;
  const j = strongest(ranking, row);
  const at = row * keys().length + j;
  const value = { scores: result.scores, scaled_scores: result.scaled, capped_scores: result.capped, position_scores: result.position }[name]?.data[at];
  const key = !record.apart && ["scores", "weights"].includes(name) && j === row ? "itself" : quoted(keys()[j]);
  return { key, value: value === undefined ? share(result.weights.data[at]) : plain(value, 3), ...(name === "scaled_scores" ? { before: plain(result.scores.data[at], 3) } : {}),
    sum: plain(result.scaled.data[at] + (result.position?.data[at] ?? 0), 3), why: result.q ? effect() : "" };
}

const filledIn = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

function draw() {
  const known = steps();
  const at = known.findIndex((step) => step.name === state.step);
  $("back").disabled = state.walking && at <= 0;
  $("next").disabled = state.walking && at === known.length - 1;
  $("next").textContent = state.walking ? "Next" : "Start the walk";
  $("back").hidden = !state.walking;
  $("leave").hidden = !state.walking;
  $("walk").hidden = !state.walking;
  document.body.classList.toggle("walking", state.walking);
  if (!state.walking || at < 0) return;
  const step = known[at];
  const values = facts(step.name);
  const isNothing = ["weights", "output"].includes(step.name) && !rowOf(shown().weights, place().row).some(Boolean);
  const sentence = isNothing ? "{query} may look at nothing: zeros." : step.alone && keys().length === 1 ? step.alone : step.sentence;
  refill($("walk"), make("h3", {}, `${record.steps.indexOf(step) + 1} of ${record.steps.length}: ${step.title}`), make("p", {}, make("code", {}, filledIn(step.formula, values))), make("p", {}, filledIn(sentence, values)));
}

/** Go to the step before or after. */
function go(by) {
  const known = steps();
  const at = state.walking ? known.findIndex((step) => step.name === state.step) + by : 0;
  if (!known[at]) return;
  change({ walking: true, step: known[at].name });
  const matrix = $("matrix").querySelector("canvas, table").getBoundingClientRect();
  const words = $("story").getBoundingClientRect().top; // of a narrow page they lie over its lower end
  if (matrix.top < 0 || matrix.bottom > (words > matrix.top ? words : innerHeight)) $("matrix-part").scrollIntoView();
}

export function startWalk() {
  $("next").addEventListener("click", () => go(1));
  $("back").addEventListener("click", () => go(-1));
  $("leave").addEventListener("click", () => { change({ walking: false, step: "weights" }); $("next").focus(); });
  listen(draw);
}
