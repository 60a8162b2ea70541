// The controls: temperature, score, mask, head, layer, and words to switch off.
import { $, fill, make, plain, refill, visible, word } from "./dom.js";
import { MASKS } from "./core.js";
import { change, isMask, listen, record, reset, state } from "./state.js";
import { headNamed, isExact, keys, layer, place } from "./view.js";

const MOST_WORDS = 60;
const options = (names, text = visible) => names.map((name) => make("option", { value: name }, text(name)));

function startTemperature() {
  const [slide, field] = [$("temperature"), $("temperature-number")];
  slide.addEventListener("input", () => change({ temperature: Number((10 ** slide.valueAsNumber).toPrecision(3)) }));
  field.addEventListener("change", () => { if (field.valueAsNumber >= 1e-6) change({ temperature: field.valueAsNumber }); });
  listen(() => {
    slide.value = String(Math.log10(state.temperature));
    slide.setAttribute("aria-valuetext", plain(state.temperature));
    if (document.activeElement !== field || field.valueAsNumber !== state.temperature) field.value = String(state.temperature);
  }, () => {});
}

function startScore() {
  const choose = $("score-choice");
  fill(choose, ...options(Object.keys(record.scores), (name) => record.scores[name].help));
  choose.addEventListener("change", () => change({ score: choose.value, edits: new Map() }));
  listen(() => { choose.value = state.score; }, () => {});
}

function startMask() {
  const [choose, left, right] = [$("mask-choice"), $("window-left"), $("window-right")];
  fill(choose, ...options(record.masks), record.allowed ? make("option", { value: "given" }, record.maskLabel) : null);
  const most = (name) => Math.max(0, ...Object.keys(MASKS[name] ?? {}).map(Number));
  const read = () => {
    const asked = [left, right].slice(0, most(choose.value)).map((field) => Math.max(0, Math.round(field.valueAsNumber) || 0));
    const [once, twice] = [[choose.value, asked[0]].join(":"), [choose.value, ...asked].join(":")];
    const name = asked[0] === asked[1] && isMask(once) ? once : twice;
    if (isMask(name)) change({ mask: name });
  };
  for (const field of [choose, left, right]) field.addEventListener("change", read);
  listen(() => {
    const [name, before, after = before] = state.mask.split(":");
    choose.value = name;
    $("window-sizes").hidden = !most(name);
    $("window-right").parentElement.hidden = most(name) < 2;
    if (before) [left.value, right.value] = [before, after];
  }, () => {});
}

function startHeads() {
  const [chooseLayer, choose] = [$("layer-choice"), $("head-choice")];
  fill(chooseLayer, ...record.layers.map((one, at) => make("option", { value: at }, String(one.number))));
  $("layer-label").hidden = record.layers.length < 2;
  chooseLayer.addEventListener("change", () => {
    const next = Number(chooseLayer.value);
    const names = record.layers[next].heads.map((head) => head.name);
    change({ layer: next, head: names.includes(state.head) ? state.head : names[0], linked: [] });
  });
  choose.addEventListener("change", () => change({ head: choose.value, linked: state.linked.filter((name) => name !== choose.value) }));
  listen(() => {
    const names = layer().heads.map((head) => head.name);
    $("head-label").hidden = names.length < 2;
    fill(choose, ...options(names.length > 1 ? [...names, "mean"] : names));
    [chooseLayer.value, choose.value] = [String(state.layer), state.head];
    $("about-head").textContent = headNamed(state.head)?.about ?? "";
  }, () => {});
}

/** Show a key to the queries again, or hide it from all of them. */
function toggle(j) {
  change({ off: state.off.includes(j) ? state.off.filter((one) => one !== j) : [...state.off, j].sort((a, b) => a - b) });
}

function startWords() {
  $("off-one").addEventListener("click", () => toggle(place().column));
  const name = () => {
    const { column } = place();
    fill($("off-one"), state.off.includes(column) ? "Switch on " : "Switch off ", word(keys()[column]));
  };
  listen(() => {
    name();
    $("off-part").hidden = keys().length > MOST_WORDS;
    if (keys().length > MOST_WORDS) return;
    refill($("off"), ...keys().map((token, j) => make("button", { type: "button", "aria-pressed": String(!state.off.includes(j)), onclick: () => toggle(j) }, word(token))));
  }, name);
}

/** Take away what cannot be changed: weights that came ready have no scores. */
function allow() {
  const head = headNamed(state.head);
  const isLive = record.scored && (state.head === "mean" ? layer().heads.every(isExact) : isExact(head));
  for (const id of ["live", "score-choice", "off-part", "off-one"]) $(id).disabled = !isLive;
  for (const id of ["live", "score-label"]) $(id).hidden = !record.scored;
  $("off-part").hidden ||= !record.scored;
  $("off-one").hidden = !record.scored;
  $("fixed").hidden = isLive || !record.scored;
}

export function startControls() {
  startTemperature();
  startScore();
  startMask();
  startHeads();
  startWords();
  listen(allow, () => {});
  $("reset").addEventListener("click", reset);
}
