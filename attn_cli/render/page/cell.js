// One cell's arithmetic: how a query's weight for a key comes about, number by number.
import { rowOf } from "./arrays.js";
import { SCORES } from "./core.js";
import { $, fill, make, plain, refill, share, svg, visible, word } from "./dom.js";
import { change, listen, record, state } from "./state.js";
import { editKey, exps, headNamed, isExact, keys, mayLook, place, queries, shown, sunk } from "./view.js";

const BAR = 22; // height of a bar, up or down

function draw() {
  const { row, column } = place();
  const result = shown();
  const at = row * keys().length + column;
  const masked = !mayLook(result, row, column);
  fill($("cell-title"), word(queries()[row]), " → ", word(keys()[column]), masked ? ": masked" : `: ${share(result.weights.data[at])}${result.norms ? `, norm ${plain(result.norms.data[at], 3)}` : ""}`);
  fill($("row-says"), ...looks(result, row));
  if (!result.scores) {
    refill($("cell"), make("p", {}, why(result)));
    return;
  }
  refill($("cell"), arithmetic(result, row, column, masked), because(result, row, column), bars(result, row, column), products(result, row, column));
}

/** Return the keys that a query may look at, the most looked at first. */
function ranked(result, row) {
  const weights = rowOf(result.weights, row);
  return [...weights.keys()].filter((j) => mayLook(result, row, j)).sort((a, b) => weights[b] - weights[a]);
}

/** Say in words where a row looks. */
function looks(result, row) {
  const [first, second] = ranked(result, row);
  const told = (j) => [word(keys()[j]), ` (${share(result.weights.data[row * keys().length + j])})`];
  if (first === undefined) return [word(queries()[row]), " may look at nothing."];
  return [word(queries()[row]), " looks most at ", make("b", {}, ...told(first)), ...(second === undefined ? [] : [", then at ", ...told(second)]), ".", sunk(result, row)];
}

/** Say what decides between a row's winner and the cell that is looked at, or, in the winner's cell, the runner-up. */
function because(result, row, column) {
  const [first, second] = ranked(result, row);
  const other = column === first ? second : column;
  if (other === undefined || !mayLook(result, row, other)) return null;
  const lead = (M) => M.data[row * keys().length + first] - M.data[row * keys().length + other];
  const told = (what, by) => `${what} ${plain(Math.abs(by))} ${by > 0 ? "behind" : "ahead"}`;
  const parts = result.position && !result.softcap ? `: ${told("content puts it", lead(result.scaled))}, ${told(result.distance || result.R ? "distance" : "position", lead(result.position))}` : "";
  return make("p", { id: "because" }, "Why not ", word(keys()[other]), `? Its sum is ${plain(lead(result.summed))} lower${parts}. So its weight is ${plain(Math.exp(lead(result.summed)), 2)} times smaller.`);
}

/** Say why a weight has no arithmetic here. */
function why(result) {
  if (state.head === "mean") return "The mean of the heads has weights but no scores of its own.";
  const came = record.scored ? "" : "The weights were given without scores. ";
  const { levels } = headNamed(state.head);
  if (!levels) return came;
  return `${came}${visible(state.head)} is here as rounded weights, right to ${plain(0.5 / levels, 3)} of the largest in their row; --exact of attn page puts a head's full numbers in.`;
}

function line(name, value, id) {
  return make("tr", {}, make("th", { scope: "row" }, ...[name].flat()), make("td", { id }, ...[value].flat()));
}

function arithmetic(result, row, column, masked) {
  const at = row * keys().length + column;
  const score = record.scores[state.score];
  const lines = [line(score.symbol, editable(result, row, column), "score")];
  const divisor = `${score.isScaled ? ` / √${result.q.columns}` : ""}${state.temperature === 1 ? "" : ` / ${plain(state.temperature)}`}`;
  if (divisor) lines.push(line(`content: ${score.symbol}${divisor}`, plain(result.scaled.data[at]), "scaled"));
  if (result.position) {
    lines.push(line(result.R || result.distance || result.turned ? `+ distance ${column - row > 0 ? "+" : ""}${column - row}` : "+ position", plain(result.position.data[at]), "distance"));
  }
  if (result.softcap) lines.push(line(`soft cap ${plain(result.softcap)}`, plain(result.capped.data[at])));
  if (masked) lines.push(line("mask", "masked: no exp, no share"));
  else {
    const { exps: made, shift, total } = exps(result, row);
    lines.push(line("= sum", plain(result.summed.data[at])));
    lines.push(line(shift ? `exp(sum − ${plain(shift)})` : "exp(sum)", plain(made[column]), "exp"));
    lines.push(line(`share: exp / ${plain(total)}`, share(result.weights.data[at]), "share"));
  }
  return make("table", { class: "sums" }, make("caption", { class: "unseen" }, "From score to share"), make("tbody", {}, ...lines));
}

/** Return the score as a field that can be typed into. */
function editable(result, row, column) {
  const at = row * keys().length + column;
  const field = make("input", { type: "number", step: "any", "aria-label": "Score", value: plain(result.scores.data[at], 6) });
  field.addEventListener("change", () => {
    const key = editKey(state.head);
    const edits = state.edits.get(key) || {};
    const scores = new Map(edits.scores);
    if (field.value === "" || !Number.isFinite(field.valueAsNumber)) scores.delete(at);
    else scores.set(at, field.valueAsNumber);
    later({ edits: new Map(state.edits).set(key, { ...edits, scores }) });
  });
  return field;
}

/** Change what is chosen once the focus has gone where the key takes it. */
function later(parts) {
  setTimeout(() => change(parts));
}

/** Return q, k and the terms of their score for a cell, as the score function takes them. */
function vectors(result, row, column) {
  const { rows, term } = SCORES[state.score];
  const q = rowOf(rows(result.q), row);
  const k = rowOf(rows(result.k), column);
  return { q, k, qk: q.map((x, d) => term(x, k[d])), label: record.scores[state.score].term };
}

/** Draw q, k and q × k as signed bars, a column a dimension. */
function bars(result, row, column) {
  const parts = vectors(result, row, column);
  const n = parts.q.length;
  const wide = Math.max(2, Math.min(14, Math.floor(320 / n)));
  const rows = Object.entries({ q: parts.q, k: parts.k, [parts.label]: parts.qk }).map(([name, numbers], at) => barRow(name, numbers, at, wide));
  const [width, height] = [44 + n * wide, 3 * (2 * BAR + 8)];
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, class: "bars", role: "img",
    "aria-label": `q, k and their products in ${n} dimensions, as bars; the numbers are in the table below` }, ...rows);
}

function barRow(name, numbers, at, wide) {
  const zero = at * (2 * BAR + 8) + BAR + 4;
  const most = numbers.reduce((found, x) => Math.max(found, Math.abs(x)), 0) || 1;
  const made = [...numbers].map((x, d) => {
    const height = (Math.abs(x) / most) * BAR;
    return svg("rect", { x: 44 + d * wide, y: x < 0 ? zero : zero - height, width: Math.max(1, wide - 1), height, class: x < 0 ? "minus" : "plus" },
      svg("title", {}, `${name}, dimension ${d}: ${plain(x)}`));
  });
  return svg("g", {}, svg("text", { x: 0, y: zero + 4 }, name), svg("line", { x1: 44, x2: 44 + numbers.length * wide, y1: zero, y2: zero }), ...made);
}

function products(result, row, column) {
  const { q, k, qk, label } = vectors(result, row, column);
  const lines = [...q].map((x, d) => make("tr", {}, make("th", { scope: "row" }, String(d)), ...[x, k[d], qk[d]].map((value) => make("td", {}, plain(value)))));
  const head = make("tr", {}, ...["dimension", "q", "k", label].map((name) => make("th", { scope: "col" }, name)));
  const details = make("details", {}, make("summary", {}, `The ${q.length} products`), make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
  details.open = isOpen;
  details.addEventListener("toggle", () => { isOpen = details.open; });
  return details;
}

let isOpen = false;

// Q, K and V of small examples, to be typed over

const MOST_NUMBERS = 150;

function drawEditors() {
  const result = shown();
  const head = headNamed(state.head);
  const isSmall = result.scores && isExact(head) && ["q", "k", "v"].every((name) => result[name].data.length <= MOST_NUMBERS);
  $("edit-part").hidden = !isSmall;
  if (isSmall) refill($("edit"), ...["q", "k", "v"].map((name) => editor(name, result[name], name === "q" ? queries() : keys())));
}

function editor(name, M, tokens) {
  const field = (i, d) => {
    const input = make("input", { type: "number", step: "any", value: plain(M.data[i * M.columns + d], 6), "aria-label": `${name.toUpperCase()}, ${visible(tokens[i])}, ${d}` });
    input.addEventListener("change", () => typeOver(name, M, i * M.columns + d, input.valueAsNumber));
    return make("td", {}, input);
  };
  const rows = tokens.map((token, i) => make("tr", {}, make("th", { scope: "row" }, word(token)), ...Array.from({ length: M.columns }, (_, d) => field(i, d))));
  return make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": name.toUpperCase() }, make("table", {}, make("caption", {}, name.toUpperCase()), make("tbody", {}, ...rows)));
}

function typeOver(name, M, at, value) {
  if (!Number.isFinite(value)) return;
  const data = M.data.slice();
  data[at] = value;
  const key = editKey(state.head);
  later({ edits: new Map(state.edits).set(key, { ...state.edits.get(key), [name]: { ...M, data } }) });
}

export function startCell() {
  listen(() => { draw(); drawEditors(); }, draw);
}
