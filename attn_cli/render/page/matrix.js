// The matrix: a table that keys and fingers walk through, or, where it is large, a canvas with a table of one row.
import { matrix as matrixOf, rowOf, stored } from "./arrays.js";
import { $, fill, make, plain, refill, share, visible, word } from "./dom.js";
import { css, inkOn, onTheme, pixels, scaleOf, shader } from "./shades.js";
import { change, listen, record, select, state } from "./state.js";
import { headNamed, inputs, keys, mayLook, place, queries, shown } from "./view.js";

const MOST_COLUMNS = 24;
const MOST_CELLS = 1200;
const MOST_NAMES = 32; // along an edge of a picture
const SQUARE = ["scores", "scaled_scores", "position_scores", "capped_scores", "masked_scores", "weights", "norms"];

const PARTS = {
  x_query: () => inputs(),
  W_q: () => stored(headNamed(state.head)?.W_q),
  q: () => shown().q,
  k: () => shown().k,
  v: () => shown().v,
  scores: () => shown().scores,
  scaled_scores: () => shown().scaled,
  capped_scores: () => (shown().softcap ? shown().capped : null),
  position_scores: () => shown().position,
  masked_scores: () => shown().summed,
  weights: () => shown().weights,
  norms: () => shown().norms,
  output: () => shown().output,
};

/** Return the ids of the queries as they are shown: in a pretrained model's vocabulary, else by first appearance. */
function shownIds() {
  return record.ids ?? ids();
}

/** Return each query's number among the distinct tokens, by first appearance. */
export function ids() {
  const distinct = [...new Set([...queries(), ...keys()])];
  return queries().map((token) => distinct.indexOf(token));
}

/** Return the matrix of a step: its numbers, labels and which cells are masked; null where there is none. */
export function stepMatrix(name) {
  if (name === "tokens") return { M: matrixOf(queries().length, 1, Float64Array.from(shownIds())), rows: queries(), columns: ["id"], isSquare: false };
  const M = PARTS[name]?.();
  if (!M) return null;
  if (SQUARE.includes(name)) return { M, rows: queries(), columns: keys(), isSquare: true };
  const columns = Array.from({ length: M.columns }, (_, d) => String(d));
  const rows = name === "W_q" ? Array.from({ length: M.rows }, (_, d) => String(d)) : ["k", "v"].includes(name) ? keys() : queries();
  return { M, rows, columns, isSquare: false };
}

/** Return what the matrix shows now. */
export function current() {
  const name = state.step === "norms" && !shown().norms ? "weights" : state.step;
  return { name, ...(stepMatrix(name) || stepMatrix("weights")) };
}

function isMasked(shownNow, i, j) {
  return shownNow.isSquare && ["weights", "norms", "masked_scores"].includes(shownNow.name) && !mayLook(shown(), i, j);
}

let drawn = null;

function draw() {
  drawn = current();
  const { M, rows, columns } = drawn;
  drawn.scale = scaleOf(drawn.name === "masked_scores" ? M.data.filter(Number.isFinite) : M.data);
  drawn.colour = shader(drawn.scale);
  const isTable = columns.length <= MOST_COLUMNS && M.data.length <= MOST_CELLS;
  const title = record.steps.find((step) => step.name === drawn.name)?.title ?? (drawn.name === "norms" ? "Norms: the length of what each word adds" : "Weights");
  $("matrix-title").textContent = drawn.name === "weights" ? "Who looks at whom" : title;
  refill($("matrix"), isTable ? table(rows, columns) : picture());
  fill($("legend"), legend());
  $("measure").textContent = drawn.name === "norms" ? "Weights" : "Norms";
  mark();
}

function table(rows, columns) {
  const turned = columns.length > 8 && drawn.isSquare;
  const head = make("tr", {}, make("td", { class: "corner" }, drawn.isSquare ? "looks ↓  at →" : ""), ...columns.map((name) => make("th", { scope: "col", class: turned ? "turned" : null }, word(name))));
  const body = rows.map((name, i) => make("tr", {}, make("th", { scope: "row", onmouseenter: () => pick(i, null), onclick: () => pick(i, null) }, word(name, 12)), ...columns.map((_, j) => cell(i, j))));
  const grid = make("table", { role: "grid", "aria-labelledby": "matrix-title", class: columns.length > 16 ? "dense denser" : columns.length > 12 ? "dense" : null },
    make("thead", {}, head), make("tbody", {}, ...body));
  grid.style.setProperty("--rows", rows.length);
  grid.addEventListener("keydown", walkByKeys);
  return grid;
}

function cell(i, j) {
  const value = drawn.M.data[i * drawn.columns.length + j];
  const masked = isMasked(drawn, i, j);
  const look = () => pick(i, j);
  const made = make("td", { role: "gridcell", tabindex: -1, "data-at": `${i},${j}`, "aria-label": `${labelOf(i, j)}: ${masked ? "masked" : plain(value)}`,
    onmouseenter: look, onfocus: look, onclick: look }, masked ? "–" : written(value));
  if (masked) made.className = "masked";
  else paint(made, drawn.colour(value));
  return made;
}

function paint(element, rgb) {
  element.style.backgroundColor = css(rgb);
  element.style.color = inkOn(rgb);
}

function labelOf(i, j) {
  const between = drawn.name === "weights" ? " looks at " : drawn.isSquare ? " and " : ", number ";
  return `${visible(drawn.rows[i])}${between}${visible(drawn.columns[j])}`;
}

function written(value) {
  if (drawn.name === "tokens") return String(value);
  if (drawn.name !== "weights") return Math.abs(value) < 1e4 ? value.toFixed(Math.abs(value) >= 100 ? 0 : drawn.name === "norms" ? 2 : 1) : value.toExponential(0);
  return value.toFixed(2).replace(/^0/, "").replace("1.00", "1.0"); // as wide as .99
}

/** Look at a cell of the matrix: a query and a key, or the query alone where columns are not keys. */
function pick(i, j) {
  if (drawn.isSquare) select(i, j);
  else if (drawn.rows === queries()) select(i, state.column);
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] };

function walkByKeys(event) {
  const move = MOVES[event.key];
  const at = event.target.dataset?.at?.split(",").map(Number) ?? (drawn.isSquare ? [place().row, place().column] : null);
  if (!move || !at) return;
  event.preventDefault();
  const [i, j] = [drawn.rows.length, drawn.columns.length].map((most, axis) => Math.max(0, Math.min(most - 1, at[axis] + move[axis])));
  const found = $("matrix").querySelector(`[data-at="${i},${j}"]`);
  if (found) found.focus();
  else select(i, j);
}

// Large matrices

function picture() {
  const { M, rows, columns } = drawn;
  const n = columns.length;
  const canvas = pixels(rows.length, n, M.data, drawn.scale, (at) => isMasked(drawn, Math.floor(at / n), at % n));
  if (rows.length !== n) canvas.style.aspectRatio = "auto"; // else as high as it is wide
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${$("matrix-title").textContent}: ${rows.length} × ${n}. Arrow keys move; the table below has the row.`);
  const look = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (from, size, n) => Math.max(0, Math.min(n - 1, Math.floor((from / size) * n)));
    pick(at(event.clientY - box.top, box.height, rows.length), at(event.clientX - box.left, box.width, columns.length));
  };
  canvas.addEventListener("pointermove", look);
  canvas.addEventListener("pointerdown", look);
  canvas.addEventListener("keydown", walkByKeys);
  const edges = [edge("rows", rows, "top"), edge("columns", columns, "left")];
  return make("div", {}, make("div", { class: "picture" }, canvas, ...edges, make("div", { class: "cross" })), make("div", { id: "row-table", class: "scroll", tabindex: 0, role: "region", "aria-label": "The row" }));
}

/** Name every so many-th row or column at the edge of a picture; the table below it names those that matter. */
function edge(of, tokens, side) {
  const step = Math.ceil(tokens.length / MOST_NAMES);
  const named = tokens.map((token, n) => [token, n]).filter(([, n]) => n % step === 0);
  return make("div", { class: `edge ${of}`, "aria-hidden": "true" }, ...named.map(([token, n]) => {
    const name = make("span", {}, word(token, 10));
    name.style[side] = `${((n + 0.5) / tokens.length) * 100}%`;
    return name;
  }));
}

/** Write the strongest keys of the row that is looked at: the table behind the canvas. */
function rowTable() {
  const { row } = place();
  const numbers = rowOf(drawn.M, Math.min(row, drawn.M.rows - 1));
  const strongest = [...numbers.keys()].sort((a, b) => numbers[b] - numbers[a]).slice(0, 12);
  const lines = strongest.map((j) => make("tr", {}, make("th", { scope: "row" }, word(drawn.columns[j]), drawn.isSquare ? ` ${j}` : ""), make("td", {}, share(numbers[j]))));
  return make("table", {}, make("caption", {}, "Row ", word(drawn.rows[Math.min(row, drawn.rows.length - 1)]), `: the largest of ${numbers.length}`), make("tbody", {}, ...lines));
}

// What is looked at

function mark() {
  const { row, column } = place();
  for (const old of $("matrix").querySelectorAll(".at, .here, [tabindex='0'][role=gridcell]")) {
    old.classList.remove("at", "here");
    if (old.role === "gridcell" || old.getAttribute("role") === "gridcell") old.tabIndex = -1;
  }
  const found = $("matrix").querySelector(`[data-at="${row},${drawn.isSquare ? column : 0}"]`);
  if (found) {
    found.tabIndex = 0;
    if (drawn.isSquare) found.classList.add("at");
    for (const one of [found.parentElement, found.parentElement.firstChild]) one.classList.add("here");
    if (drawn.isSquare) $("matrix").querySelectorAll("thead th")[column].classList.add("here");
    return;
  }
  const any = $("matrix").querySelector("[role=gridcell]");
  if (any) any.tabIndex = 0;
  const cross = $("matrix").querySelector(".cross");
  if (!cross) return;
  cross.style.left = `${((drawn.isSquare ? column + 0.5 : 0) / drawn.columns.length) * 100}%`;
  cross.style.top = `${((row + 0.5) / drawn.rows.length) * 100}%`;
  fill($("row-table"), rowTable());
}

function legend() {
  const { scale } = drawn;
  const low = scale.isSigned ? -scale.most : 0;
  const patches = Array.from({ length: 12 }, (_, n) => {
    const patch = make("span", { class: "patch" });
    paint(patch, drawn.colour(low + ((scale.most - low) * n) / 11));
    return patch;
  });
  return make("p", {}, `${plain(low, 2)} `, ...patches, ` ${plain(scale.most, 2)}`, shown().allowed ? "   – masked" : "");
}

export function startMatrix() {
  const choose = $("show");
  const known = record.steps.filter((step) => stepMatrix(step.name) || step.name === "position_scores");
  fill(choose, ...known.filter((step) => stepMatrix(step.name)).map((step) => make("option", { value: step.name }, step.title.split(":")[0])),
    record.norms ? make("option", { value: "norms" }, "Norms") : null);
  $("measure").hidden = !record.norms;
  $("measure").addEventListener("click", () => change({ step: state.step === "norms" ? "weights" : "norms", walking: false }));
  choose.addEventListener("change", () => change({ step: choose.value, walking: false }));
  listen(() => { draw(); choose.value = drawn.name; }, mark);
  onTheme(draw);
}
