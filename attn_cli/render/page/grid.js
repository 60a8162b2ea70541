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
  const name = record.layers.length > 1 ? `layer ${record.layers[at].number}, head ${visible(head.name)}` : `head ${visible(head.name)}`;
  const made = make("button", { type: "button", "aria-pressed": String(here), "aria-label": name, title: name, onclick: () => change({ layer: at, head: head.name, linked: [], column: null }) },
    thumbnail(head, at), make("span", {}, visible(head.name)));
  return made;
}

function draw() {
  const isMany = record.layers.length > 1;
  const rows = record.layers.map((layer, at) => make("div", { class: "tiles" }, isMany ? make("span", { class: "number" }, String(layer.number)) : null, ...layer.heads.map((head) => tile(head, at))));
  refill($("grid"), ...rows);
}

/** Mark the chosen tile without drawing all anew: the pictures of a large model stay as they are. */
function update() {
  if (record.layers.some((layer) => layer.heads.some((head) => !head.thumb)) || typed()) return draw();
  const tiles = $("grid").querySelectorAll("button");
  if (!tiles.length) return draw();
  let n = 0;
  record.layers.forEach((layer, at) => layer.heads.forEach((head) => tiles[n++].setAttribute("aria-pressed", String(at === state.layer && head.name === state.head))));
  return undefined;
}

export function startGrid() {
  $("heads-part").hidden = record.layers.length * record.layers[0].heads.length < 2;
  listen(update, () => {});
  onTheme(draw);
}
