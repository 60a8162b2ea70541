// Elements of the page. What somebody typed goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** Return a new element with these attributes; `on...` are functions, and children are elements or text. */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same, of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Put these children in the place of all that an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

const FOCUSABLE = "button, input, select, summary, [tabindex]";

/** The same, and what had the focus among the old children has it among the new. */
export function refill(element, ...children) {
  const at = [...element.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  fill(element, ...children);
  if (at >= 0) element.querySelectorAll(FOCUSABLE)[at]?.focus({ preventScroll: true });
}

const HIDDEN = /(?<![\p{L}\p{N}\p{P}\p{S}])[\ufe00-\ufe0f]|[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\uffa0\u{e0100}-\u{e01ef}]/gu;
const JOINER = /(?<=[\p{So}\u{1f3fb}-\u{1f3ff}]\ufe0f?)\u200d(?=[\p{So}\u{1f3fb}-\u{1f3ff}])/gu;

/** Return text with each character that a page would obey or hide spelled out, as attn shows it everywhere. */
export function visible(text) {
  const joiners = new Set([...text.matchAll(JOINER)].map((found) => found.index));
  return text.replace(HIDDEN, (char, at) => {
    const code = char.codePointAt(0);
    if (char === " " || joiners.has(at)) return char;
    return code < 32 || code === 127 ? `^${String.fromCharCode(code ^ 64)}` : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** Return a token to be shown, cut where it is long, and apart from the direction of what stands around it. */
export function word(token, most = 16) {
  const [whole, short] = [visible(token), cut(token, most)];
  return make("bdi", { title: short === whole ? null : whole }, short);
}

/** Return a token's visible text, cut where it is long. */
export function cut(token, most = 14) {
  const letters = [...visible(token)];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
}

/** Return a number for a sentence: at most `digits` decimals, without trailing zeros. */
export function plain(value, digits = 4) {
  if (value && (Math.abs(value) < 10 ** -digits || Math.abs(value) >= 1e6)) return String(Number(value.toPrecision(digits)));
  return String(Number(value.toFixed(digits)) || 0);
}

/** Return a weight: three decimals, or two significant digits if it is small. */
export function share(weight) {
  return weight === 0 || weight >= 0.01 ? weight.toFixed(3) : String(Number(weight.toPrecision(2)));
}

/** Save text or bytes as a file of that name. */
export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
