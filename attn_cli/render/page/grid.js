// All heads at a glance: a small picture of each, a row a layer, to choose from.
import { numbers } from "./arrays.js";
import { $, make, refill, visible } from "./dom.js";
import { onTheme, pixels, scaleOf } from "./shades.js";
import { change, listen, record, state } from "./state.js";
import { headResult, typed } from "./view.js";

/** Return a head's small picture: as Python made it, or of the weights as they are now. */
function thumbnail(head, at) {
  const isFresh = !head.thumb || (typed() && at === state.layer);
  const [rows, columns, values] = isFresh ? sizes(headResult(head.name, at).weights) : [...head.thumb.shape, numbers(head.thumb)];
  const canvas = pixels(rows, columns, values, scaleOf(values));
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

const sizes = (M) => [M.rows, M.columns, M.data];

function tile(head, at) {
  const here = at === state.layer && head.name === state.head;
  const does = head.role ? `: ${head.role}` : "";
  const name = record.layers.length > 1 ? `layer ${record.layers[at].number}, head ${visible(head.name)}${does}` : `head ${visible(head.name)}`;
  return make("button", { type: "button", "aria-pressed": String(here), "aria-label": name, title: name, onclick: () => open(at, head.name) },
    thumbnail(head, at), make("span", {}, [visible(head.name), head.role].filter(Boolean).join(" ")));
}

/** Open a head: the overview gives way to its matrix. */
async function open(at, head) {
  const wasOverview = state.overview;
  await change({ layer: at, head, linked: [], column: null, overview: false });
  if (wasOverview) show("#words [tabindex='0']");
}

/** Go to the top of the page, and put the focus there. */
function show(selector) {
  document.querySelector(selector)?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function draw() {
  $("grid").style.setProperty("--heads", Math.max(...record.layers.map((layer) => layer.heads.length)));
  $("grid").style.setProperty("--layers", record.layers.length);
  const isMany = record.layers.length > 1;
  const rows = record.layers.map((layer, at) => make("div", { class: "tiles" }, isMany ? make("span", { class: "number" }, String(layer.number)) : null, ...layer.heads.map((head) => tile(head, at))));
  refill($("grid"), ...rows);
}

/** Mark the chosen tile without drawing all anew: the pictures of a large model stay as they are. */
function update() {
  document.body.classList.toggle("overview", state.overview);
  $("to-heads").hidden = state.overview || record.layers.length < 2;
  if (record.layers.some((layer) => layer.heads.some((head) => !head.thumb)) || typed()) return draw();
  const tiles = $("grid").querySelectorAll("button");
  if (!tiles.length) return draw();
  let n = 0;
  record.layers.forEach((layer, at) => layer.heads.forEach((head) => tiles[n++].setAttribute("aria-pressed", String(at === state.layer && head.name === state.head))));
  return undefined;
}

export function startGrid() {
  $("heads-part").hidden = record.layers.length * record.layers[0].heads.length < 2;
  if (record.layers.length > 1) $("heads-title").textContent = `All heads of ${record.layers.length} layers; layer ${record.layers[0].number} is nearest the words. Open one:`;
  $("to-heads").addEventListener("click", () => { change({ overview: true, walking: false }); show("#grid [aria-pressed=true]"); });
  listen(update, () => {});
  onTheme(draw);
}
