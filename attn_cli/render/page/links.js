// Links between two columns of tokens: the queries on the left, the keys on the right, a line for each weight.
import { rowOf } from "./arrays.js";
import { $, cut, fill, make, refill, share, svg, visible, word } from "./dom.js";
import { colourOf, isDark, onTheme } from "./shades.js";
import { change, listen, select, state } from "./state.js";
import { headResult, keys, layer, place, queries } from "./view.js";

const LINE = 24; // from one word to the next
const [LEFT, RIGHT, WIDTH] = [130, 270, 400];
const MOST_WORDS = 60;
const MOST_LINKS = 16; // of a row, where words are many
const FAINTEST = 0.02;

/** Return the heads whose links are drawn: the shown one, and those that were chosen beside it. */
export const linkedHeads = () => [state.head, ...state.linked.filter((name) => name !== state.head)];

/** Return the places of the queries and keys that are drawn: all, or of a long text the row and its strongest keys. */
function drawnWords() {
  const { row } = place();
  if (Math.max(queries().length, keys().length) <= MOST_WORDS) return { rows: [...queries().keys()], columns: [...keys().keys()] };
  const found = new Set();
  for (const name of linkedHeads()) {
    const weights = rowOf(headResult(name).weights, row);
    for (const j of [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, MOST_LINKS)) found.add(j);
  }
  return { rows: [row], columns: [...found].sort((a, b) => a - b) };
}

/** Draw the links as SVG that needs no style sheet: it is saved as a file, too. */
export function linksPicture(ink = "currentColor", dark = isDark()) {
  const { rows, columns } = drawnWords();
  const { row } = place();
  const high = Math.max(rows.length, columns.length) * LINE;
  const y = (n, count) => LINE / 2 + n * LINE + (high - count * LINE) / 2;
  const lines = linkedHeads().flatMap((name, n) => linesOf(name, colourOf(n, dark), rows, columns, y));
  const left = rows.map((i, n) => label(cut(queries()[i]), LEFT - 6, y(n, rows.length), "end", i === row, ink, i));
  const right = columns.map((j, n) => label(cut(keys()[j]), RIGHT + 6, y(n, columns.length), "start", j === state.column, ink, null));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${high}`, class: "links", role: "group", "aria-label": "Links from queries, on the left, to keys, on the right" },
    svg("g", { fill: "none" }, ...lines), ...left, ...right);
}

function linesOf(name, colour, rows, columns, y) {
  const { weights } = headResult(name);
  const { row } = place();
  const found = [];
  rows.forEach((i, m) => columns.forEach((j, n) => {
    const weight = weights.data[i * keys().length + j];
    if (weight < FAINTEST) return;
    const [from, to] = [y(m, rows.length), y(n, columns.length)];
    const middle = (LEFT + RIGHT) / 2;
    found.push(svg("path", { d: `M${LEFT} ${from}C${middle} ${from} ${middle} ${to} ${RIGHT} ${to}`, stroke: colour,
      "stroke-width": (1 + 5 * weight).toFixed(1), "stroke-opacity": (weight * (i === row ? 0.95 : 0.22)).toFixed(3) }));
  }));
  return found;
}

function label(text, x, y, anchor, isHere, ink, row) {
  const made = svg("text", { x, y: y + 4, "text-anchor": anchor, fill: ink, "font-size": 14, "font-weight": isHere ? "bold" : "normal" }, text);
  if (row === null) return made;
  const look = () => select(row, null);
  return svg("g", { tabindex: 0, role: "button", "aria-pressed": String(isHere), "aria-label": `Links of ${text}`, onmouseenter: look, onfocus: look, onclick: look },
    svg("rect", { x: 0, y: y - LINE / 2, width: LEFT, height: LINE, fill: "transparent" }), made);
}

function draw() {
  refill($("links"), linksPicture());
  fill($("links-text"), inWords());
}

/** Say the links of the row that is looked at, for those who do not see the lines. */
function inWords() {
  const { row } = place();
  const parts = linkedHeads().map((name) => {
    const weights = rowOf(headResult(name).weights, row);
    const strongest = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 3).filter((j) => weights[j] > 0);
    const told = strongest.flatMap((j, n) => [n ? ", " : "", word(keys()[j]), ` ${share(weights[j])}`]);
    return make("li", {}, make("b", {}, visible(name)), ": ", ...(told.length ? told : ["nothing"]));
  });
  return make("div", {}, make("p", {}, word(queries()[row]), " looks at:"), make("ul", {}, ...parts));
}

/** Boxes to choose the heads whose links are drawn beside the shown head's. */
function choices() {
  const names = layer().heads.map((head) => head.name);
  $("links-heads").hidden = names.length < 2;
  $("together").setAttribute("aria-pressed", String(names.length > 1 && linkedHeads().length >= names.length));
  refill($("links-heads"), make("legend", {}, "Heads together"), ...names.map(choice));
}

/** Draw the links of every head at once, or of the shown one alone. */
function together() {
  const names = layer().heads.map((head) => head.name);
  change({ overview: false, linked: state.linked.length < names.length - 1 ? names.filter((name) => name !== state.head) : [] });
}

function choice(name) {
  const n = linkedHeads().indexOf(name);
  const box = make("input", { type: "checkbox" });
  box.checked = n >= 0;
  box.disabled = name === state.head;
  box.addEventListener("change", () => change({ linked: box.checked ? [...state.linked, name] : state.linked.filter((one) => one !== name) }));
  const patch = n < 0 ? null : make("span", { class: "patch" });
  if (patch) patch.style.backgroundColor = colourOf(n);
  return make("label", {}, box, ...(patch ? [patch] : []), visible(name));
}

export function startLinks() {
  $("together").addEventListener("click", together);
  listen(() => { choices(); draw(); }, draw);
  onTheme(() => { choices(); draw(); });
}
