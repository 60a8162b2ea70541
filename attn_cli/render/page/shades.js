// Colours: the ramps of attn's own screens, for a dark or a light page, and those of several heads at once.
import { make } from "./dom.js";
import { record } from "./state.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
let isPrinted = false;
let around = null; // whether a notebook around the page is dark; null where nobody said so

export const isDark = () => (around ?? DARK.matches) && !isPrinted;

/** Be told when the page goes between dark and light, and before and after it is printed. */
export function onTheme(tell) {
  DARK.addEventListener("change", tell);
  for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => { isPrinted = printed; tell(); });
  }
  addEventListener("message", ({ data }) => {
    if (!["dark", "light"].includes(data?.attnScheme)) return;
    around = data.attnScheme === "dark";
    document.documentElement.dataset.scheme = data.attnScheme;
    tell();
  });
}

const ramps = Object.fromEntries(Object.entries(record.ramps).map(([name, codes]) => [name, codes.match(/.{6}/g).map(colour)]));

function colour(code) {
  return [0, 2, 4].map((at) => parseInt(code.slice(at, at + 2), 16));
}

/** How values become shades: from 0 to the largest, or, where some are below zero, from its negative. */
export function scaleOf(values) {
  let low = 0;
  let high = 0;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high && value !== Infinity) high = value;
  }
  return { isSigned: low < 0, most: Math.max(high, -low) || 1 };
}

/** Return the function that gives a value's colour as [red, green, blue]. */
export function shader(scale, dark = isDark()) {
  const ramp = ramps[(dark ? "dark" : "light") + (scale.isSigned ? "Signed" : "")];
  const last = ramp.length - 1;
  const [zero, size] = scale.isSigned ? [last / 2, last / 2 / scale.most] : [0, last / scale.most];
  return (value) => ramp[Math.max(0, Math.min(last, Math.round(zero + value * size)))];
}

/** Return a small picture on a canvas: a pixel for each value, those that `isMasked` says in a faint grey. */
export function pixels(rows, columns, values, scale, isMasked = () => false) {
  const canvas = make("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const colourIn = shader(scale);
  for (let at = 0; at < values.length; at++) {
    const isGrey = isMasked(at);
    const [red, green, blue] = isGrey ? GREY : colourIn(values[at]);
    image.data[4 * at] = red;
    image.data[4 * at + 1] = green;
    image.data[4 * at + 2] = blue;
    image.data[4 * at + 3] = isGrey ? 60 : 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

const GREY = [128, 128, 128];

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/** Return black or white, whichever stands out more (WCAG 2 relative luminance). */
export function inkOn(rgb) {
  const [red, green, blue] = rgb.map((v) => v / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Paul Tol's bright and muted schemes, which readers of every kind of colour vision tell apart.
const LIGHT_HEADS = ["#4477aa", "#aa3377", "#228833", "#b5651d", "#332288", "#ee6677", "#117733", "#882255"];
const DARK_HEADS = ["#66ccee", "#ee99bb", "#88cc66", "#ddcc77", "#9999ee", "#ee8866", "#44bb99", "#dd77cc"];

/** Return the colour of the nth head whose links are drawn; past those eight, hues a golden angle apart. */
export function colourOf(n, dark = isDark()) {
  return (dark ? DARK_HEADS : LIGHT_HEADS)[n] ?? `hsl(${Math.round(n * 137.508) % 360} 55% ${dark ? 70 : 38}%)`;
}
