// The sentence: every word shaded by how much the chosen word looks at it, with an arc to it, as thick as its weight.
import { rowOf } from "./arrays.js";
import { $, fill, make, refill, share, svg, visible, word } from "./dom.js";
import { linkedHeads } from "./links.js";
import { colourOf, css, inkOn, onTheme, scaleOf, shader } from "./shades.js";
import { change, listen, record, select, state } from "./state.js";
import { headResult, keys, mayLook, place, queries, shown } from "./view.js";

const MOST_ARCS = 60; // words that arcs are drawn between
const FAINTEST = 0.02;
const [SHALLOW, HANG] = [8, 40]; // how far an arc hangs below its words: between two lines of them, below the last

let colour = null;

const isOne = () => !record.apart && queries().length === keys().length;
const wordsOf = (line) => [...$("words").children[line].children];
const keyWords = () => wordsOf(isOne() ? 0 : 1);

function draw() {
  const weights = shown().weights.data;
  colour = shader(scaleOf(weights));
  const asked = make("div", { role: "toolbar", "aria-label": "The sentence: choose a word to see where it looks" }, ...queries().flatMap((token, i) => [query(token, i), " "]));
  refill($("words"), asked, isOne() ? null : make("div", { class: "keys" }, ...keys().flatMap((token) => [make("span", {}, word(token)), " "])));
  $("words").classList.toggle("many", queries().length > MOST_ARCS);
  const isMasked = state.mask !== "none" || state.off.length > 0;
  const size = `${record.title[Number(isMasked)]}: ${counted(queries().length, "query (row)", "queries (rows)")} x ${counted(keys().length, "key (column)", "keys (columns)")}`;
  const text = queries().slice(0, 60).map(visible).join(" ");
  $("size").textContent = size;
  $("heading").textContent = document.title = `${text}. ${size}`;
  mark();
}

const counted = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;

function query(token, i) {
  const look = () => select(i, null);
  return make("button", { type: "button", onmouseenter: look, onfocus: look, onclick: () => (state.overview ? change({ overview: false, row: i, column: null }) : look()) }, word(token, 24));
}

function walkByKeys(event) {
  const words = wordsOf(0);
  const at = words.indexOf(event.target);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: words.length - 1 }[event.key];
  if (at < 0 || !words[to]) return;
  event.preventDefault();
  words[to].focus();
}

/** Light up the chosen word and what it looks at. */
function mark() {
  const { row, column } = place();
  const result = shown();
  const weights = rowOf(result.weights, row);
  keyWords().forEach((one, j) => {
    const rgb = colour(weights[j]);
    const masked = !mayLook(result, row, j);
    const plain = masked || state.overview; // whose shades would they be?
    one.style.backgroundColor = plain ? "" : css(rgb);
    one.style.color = plain ? "" : inkOn(rgb);
    one.title = masked ? "masked" : share(weights[j]);
    one.classList.toggle("masked", masked);
    one.classList.toggle("at", j === column);
  });
  wordsOf(0).forEach((one, i) => {
    one.setAttribute("aria-pressed", String(i === row && !state.overview));
    one.tabIndex = i === row ? 0 : -1;
  });
  const [area, chosen] = [$("words"), wordsOf(0)[row]];
  if (!area.matches(":hover, :focus-within")) area.scrollTop = chosen.offsetTop - area.offsetTop - area.clientHeight / 2;
  drawArcs();
}

function drawArcs() {
  if (!$("words").firstElementChild) return; // nothing is drawn yet
  const [area, names, words] = [$("type-form").getBoundingClientRect(), linkedHeads(), keyWords()];
  const { row } = place();
  const from = wordsOf(0)[row];
  $("arcs-heads").hidden = names.length < 2;
  fill($("arcs-heads"), ...names.map((name, n) => make("span", {}, patch(colourOf(n)), " ", visible(name))));
  const isDrawn = !state.overview && Math.max(queries().length, keys().length) <= MOST_ARCS && from.offsetParent;
  const arcs = !isDrawn ? [] : names.flatMap((name, n) => {
    const weights = rowOf(headResult(name).weights, row);
    return words.flatMap((to, j) => (weights[j] < FAINTEST ? [] : [svg("path", { d: arc(from, to, area, n), pathLength: 1, stroke: colourOf(n),
      "stroke-width": (1 + (names.length > 3 ? 3 : 7) * weights[j]).toFixed(1), "stroke-opacity": (0.25 + 0.7 * weights[j]).toFixed(2) })]));
  });
  fill($("arcs"), ...arcs);
}

function patch(colour) {
  const made = make("span", { class: "patch" });
  made.style.backgroundColor = colour;
  return made;
}

/** Return the curve from a word to another: hanging below their line, or between two lines; `n` moves it aside. */
function arc(from, to, area, n) {
  const [a, b] = [from, to].map((one) => one.getBoundingClientRect());
  const [x, end] = [a, b].map((box) => box.left + box.width / 2 - area.left + 2 * n);
  const round = (...numbers) => numbers.map((one) => one.toFixed(1)).join(" ");
  if (Math.abs(a.top - b.top) > 4) {
    const [y, bottom] = a.top < b.top ? [a.bottom, b.top] : [a.top, b.bottom];
    const [top, low] = [y - area.top, bottom - area.top];
    return `M${round(x, top)}C${round(x, (top + low) / 2, end, (top + low) / 2, end, low)}`;
  }
  const y = a.bottom - area.top;
  const words = [...$("words").lastElementChild.children];
  const wide = words.at(-1).getBoundingClientRect().right - words[0].getBoundingClientRect().left;
  const isLast = Math.abs(words.at(-1).getBoundingClientRect().top - a.top) < 4;
  const deep = 1.33 * (isLast ? SHALLOW + HANG * Math.min(1, Math.abs(end - x) / Math.abs(wide)) : SHALLOW);
  const [left, right] = from === to ? [x - 9, x + 9] : [x, end];
  return `M${round(left, y)}C${round(left, y + deep, right, y + deep, right, y)}`;
}

export function startWords() {
  $("words").addEventListener("keydown", walkByKeys);
  listen(draw, mark);
  onTheme(draw);
  new ResizeObserver(drawArcs).observe($("words"));
}
