// What can be taken away: the picture, the data as JSON, the command line that makes the same view.
import { rowOf } from "./arrays.js";
import { SCORES } from "./core.js";
import { $, make, save, svg, visible } from "./dom.js";
import { linksPicture } from "./links.js";
import { current, ids } from "./matrix.js";
import { css, inkOn, scaleOf, shader } from "./shades.js";
import { hash, listen, record, state } from "./state.js";
import { editKey, headNamed, headResult, inputs, isExact, keys, layer, mayLook, queries, shown, typed } from "./view.js";

// Data

const lists = (M) => M && Array.from({ length: M.rows }, (_, i) => [...rowOf(M, i)]);

function maskLists(result) {
  return result.allowed && queries().map((_, i) => keys().map((_, j) => mayLook(result, i, j)));
}

function headRecord(name) {
  const result = headResult(name);
  const made = { name, weights: lists(result.weights), output: lists(result.output ?? null) };
  if (!result.scores) return made;
  const masked = lists(result.summed).map((row, i) => row.map((s, j) => (mayLook(result, i, j) ? s : null)));
  return { ...made, q: lists(result.q), k: lists(result.k), v: lists(result.v), scores: lists(result.scores), scaled_scores: lists(result.scaled),
    position_scores: lists(result.position), masked_scores: masked, sink_score: sinkScore(result) };
}

/** Return a sink's score before the temperature divides it; null where there is none. */
const sinkScore = (result) => (result.sink == null ? null : result.sink * state.temperature);

/** Return the view as JSON of the schema attn/1, as `attn show` reads it. */
export function dataRecord() {
  const result = shown();
  const isRounded = layer().rounded && !typed(); // X is here to be drawn alone
  const heads = layer().heads.filter((head) => isExact(head) || !record.scored).map((head) => headRecord(head.name));
  return {
    schema: "attn/1", kind: record.kind, query_tokens: queries(), key_tokens: keys(), query_ids: record.apart ? null : ids(), key_ids: record.apart ? null : ids(),
    query_input_ids: record.ids, key_input_ids: record.apart ? null : record.ids,
    query_rows: null, unknown: typed() ? typed().unknown : record.unknown, dropped: typed() ? typed().dropped : record.dropped,
    projection: { source: "given", name: null, layout: "in-out", seed: null, layer: layer().number },
    score: record.scored ? state.score : null, scale: result.scale ?? (record.scored ? headScale() : null), temperature: record.scored ? state.temperature : null,
    mask: maskLists(result), mask_name: maskLabel(), mask_convention: "true = may attend", head: state.head,
    weights: lists(result.weights), norms: lists(result.norms ?? null), output: lists(result.output ?? null), condensed: false,
    x_query: isRounded ? null : lists(inputs()), x_key: isRounded ? null : lists(inputs(true)), heads, notes: ["Saved from a page of attn."],
  };
}

function headScale() {
  const head = layer().heads.find(isExact);
  return head ? headResult(head.name).scale : null;
}

function maskLabel() {
  const name = state.mask === "given" ? record.maskLabel : state.mask;
  return state.off.length ? (name === "none" ? "without" : `${name}, without`) : name;
}

/** Return the numbers of the shown head as a file that `attn compute` reads; a typed score is a position score. */
export function inputRecord() {
  const result = shown();
  const made = { about: "Saved from a page of attn.", tokens: queries() };
  if (record.apart) made.context_tokens = keys();
  Object.assign(made, { Q: lists(result.q), K: lists(result.k), V: lists(result.v), score: state.score });
  if (result.sink != null) made.sinks = [sinkScore(result)];
  const edits = state.edits.get(editKey(state.head))?.scores;
  if (result.position || edits?.size) made.position_scores = lists(addedTo(result, edits));
  const mask = maskLists(result);
  return mask ? { ...made, mask } : made;
}

/** Return what is added to the scaled scores that `compute` makes of Q and K, so that typed scores come out. */
function addedTo(result, edits = new Map()) {
  const factor = result.scale / state.temperature;
  const scores = SCORES[state.score].of(result.q, result.k);
  return { ...result.weights, data: result.scaled.data.map((s, at) => (result.position?.data[at] ?? 0) + (edits.has(at) ? s - scores.data[at] * factor : 0)) };
}

// The command line

const [INPUT_FILE, DATA_FILE] = ["attn-numbers.json", "attn-view.json"];
const NO_ARGUMENT = /^-$|[\0\p{Cs}]/u; // `-` is standard input, and no argument holds the others

/** Return a word as one types it in bash or zsh; what a terminal would obey or hide is written as its bytes, as in attn_cli/errors.py. */
function quote(word) {
  if (visible(word) === word) return /^(?!=)[\w./:=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/./gsu, (char) => (visible(char) === char && !"\\'!".includes(char) ? char : asBytes(char)))}'`;
}

function asBytes(char) {
  const bytes = /[\udc80-\udcff]/u.test(char) ? [char.charCodeAt(0) & 0xff] : new TextEncoder().encode(char.replace("\0", "\ufffd"));
  return Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
}

/** Return how `--without` names a key: its token where all of it are off, else its place; null where neither will do. */
function withoutNames() {
  const tokens = keys();
  const names = state.off.filter((j) => j < tokens.length).map((j) => {
    const same = tokens.flatMap((token, at) => (token === tokens[j] ? [at] : []));
    if (same.every((at) => state.off.includes(at))) return tokens[j];
    return tokens.includes(String(j)) ? null : String(j);
  });
  return names.includes(null) ? null : [...new Set(names)];
}

/** Return the words of the command that makes this view, and whether it needs the saved numbers. */
export function command() {
  const without = withoutNames();
  const isEdited = [...state.edits.values()].some((edit) => edit.q || edit.k || edit.v || edit.scores?.size);
  const isMaskChanged = state.mask !== record.mask || state.off.join() !== record.off.join();
  const isOther = (state.mask === "given" && record.mask !== "given") || (record.below && layer().number > 0 && isMaskChanged);
  const live = record.scored && state.temperature !== 1 ? ["-t", String(state.temperature)] : [];
  const texts = record.command ? [typed() ? state.text : record.command.text, ...record.command.after] : [];
  if (isEdited || !record.command || !without || isOther || texts.some((text) => NO_ARGUMENT.test(text))) {
    const ready = record.scored && shown().scores;
    return { words: ready ? ["attn", "compute", INPUT_FILE, ...live] : ["attn", "show", DATA_FILE], file: ready ? INPUT_FILE : DATA_FILE };
  }
  const options = [...record.command.options];
  if (state.head !== record.command.head) options.push("--head", state.head);
  if (record.layers.length > 1) options.push("--layer", String(layer().number));
  if (state.score !== record.command.score) options.push("--score", state.score);
  const usual = record.kind === "masked" ? "causal" : "none";
  if (state.mask !== usual && state.mask !== "given") options.push("--mask", state.mask);
  options.push(...live, ...without.flatMap((name) => [name.startsWith("-") ? `--without=${name}` : "--without", ...(name.startsWith("-") ? [] : [name])]));
  const ends = texts[0].startsWith("-") || texts.length > 1 ? ["--"] : [];
  return { words: [...record.command.words, ...options, ...ends, ...texts], file: null };
}

export const commandLine = () => command().words.map(quote).join(" ");

// Pictures

const CELL = 44;

/** Draw the matrix as SVG that stands by itself; a large one as a picture within it. */
function matrixPicture(dark) {
  const { M, rows, columns, name, isSquare } = current();
  const size = M.data.length > 4000 ? Math.max(1, Math.floor(900 / columns.length)) : CELL;
  const [left, top] = [120, 100];
  const scale = scaleOf(M.data.filter(Number.isFinite));
  const ink = dark ? "#eceff1" : "#111";
  const colour = shader(scale, dark);
  const parts = [];
  M.data.forEach((value, at) => {
    const [i, j] = [Math.floor(at / columns.length), at % columns.length];
    const masked = isSquare && ["weights", "norms", "masked_scores"].includes(name) && !mayLook(shown(), i, j);
    const back = masked ? null : colour(value);
    const [x, y] = [left + j * size, top + i * size];
    parts.push(svg("rect", { x, y, width: size, height: size, fill: back ? css(back) : "none" }));
    if (size === CELL) parts.push(svg("text", { x: x + size / 2, y: y + size / 2 + 4, "text-anchor": "middle", "font-size": 12, fill: back ? inkOn(back) : ink }, masked ? "–" : value.toFixed(2)));
  });
  const text = (token) => [...visible(token)].slice(0, 14).join("");
  if (size >= 10) {
    rows.forEach((token, i) => parts.push(svg("text", { x: left - 6, y: top + (i + 0.5) * size + 4, "text-anchor": "end", "font-size": 13, fill: ink }, text(token))));
    columns.forEach((token, j) => parts.push(svg("text", { x: 0, y: 0, "font-size": 13, fill: ink, transform: `translate(${left + (j + 0.5) * size + 4} ${top - 6}) rotate(-60)` }, text(token))));
  }
  return { picture: svg("g", { "font-family": "sans-serif" }, ...parts), width: left + columns.length * size + 40, height: top + rows.length * size + 10 };
}

/** Return the view as one SVG: the matrix, the links beside it, and the command below. */
export function viewPicture(dark) {
  const { picture, width, height } = matrixPicture(dark);
  const ink = dark ? "#eceff1" : "#111";
  const links = linksPicture(ink, dark);
  const [, , linksWidth, linksHeight] = links.getAttribute("viewBox").split(" ").map(Number);
  for (const [name, value] of Object.entries({ x: width, y: 60, width: linksWidth, height: linksHeight, "font-family": "sans-serif" })) links.setAttribute(name, value);
  const [whole, high] = [width + linksWidth + 10, Math.max(height, linksHeight + 60) + 40];
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: whole, height: high, viewBox: `0 0 ${whole} ${high}` },
    svg("title", {}, visible(document.title)), svg("rect", { width: whole, height: high, fill: dark ? "#101418" : "#ffffff" }),
    picture, links, svg("text", { x: 10, y: high - 12, "font-size": 12, "font-family": "monospace", fill: ink }, visible(commandLine())));
}

const svgText = () => new XMLSerializer().serializeToString(viewPicture(false));

function savePng() {
  const picture = new Image();
  const url = URL.createObjectURL(new Blob([svgText()], { type: "image/svg+xml" }));
  picture.onload = () => {
    const canvas = make("canvas", { width: picture.width * 2, height: picture.height * 2 });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    canvas.toBlob((blob) => save("attn-view.png", "image/png", blob));
  };
  picture.src = url;
}

async function copy(text, says) {
  try {
    await navigator.clipboard.writeText(text);
    $("save-says").textContent = says;
  } catch {
    $("save-says").textContent = "The browser does not let the page copy: mark the text and copy it.";
  }
}

export function startSaving() {
  const json = (value) => `${JSON.stringify(value)}\n`;
  const onClick = {
    "save-svg": () => save("attn-view.svg", "image/svg+xml", svgText()),
    "save-png": savePng,
    "save-json": () => save(DATA_FILE, "application/json", json(dataRecord())),
    "save-numbers": () => save(INPUT_FILE, "application/json", json(inputRecord())),
    "copy-command": () => copy(commandLine(), "The command is copied."),
    "copy-link": () => copy(`${location.href.split("#")[0]}#${hash()}`, "The link is copied."),
  };
  for (const [id, act] of Object.entries(onClick)) $(id).addEventListener("click", act);
  listen(() => {
    const { file } = command();
    $("command").textContent = visible(commandLine());
    $("command-note").textContent = file ? `It reads the file ${file}: save it first.` : commandLine().includes("$'") ? "It is written for bash and zsh, which read $'...' as the same text." : "";
    $("save-numbers").hidden = !(record.scored && shown().scores && headNamed(state.head));
  }, () => {});
}
