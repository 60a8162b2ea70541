// Tokens to X, as attn_cli/vectors/lookup.py and attn_cli/models/encoder.py do it, from the words that the page carries.
import { matrix, numbers, rowOf } from "./arrays.js";

const DIGIT =
  /[\p{Nd}²³¹\u1369-\u1371\u19da⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐\u24ea⓵-⓽\u24ff❶-❾➀-➈➊-➒\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]/u;
const LONGEST_ENDING = 4;

/** Return the ways of writing a token that are looked up, in order. */
export function forms(token) {
  const lower = token.toLowerCase();
  return [token, lower, lower.normalize("NFC").replaceAll("’", "'")];
}

/** Return the names of a word's features: `*` that all words have, its shape, its endings, itself. */
export function features(token) {
  const word = token.normalize("NFC").replaceAll("’", "'");
  const lower = word.toLowerCase();
  const letters = [...lower];
  const endings = [];
  for (let n = 1; n <= LONGEST_ENDING && letters.length > n; n++) endings.push(`-${letters.slice(-n).join("")}`);
  return ["*", ...shape(word), ...endings, `=${lower}`];
}

/** Return its shape: X all capitals, Xx capitalised, x small, 9 digits, x9 mixed, . marks, and what joins. */
function shape(word) {
  const hasLetters = /\p{L}/u.test(word);
  const isUpper = /\p{Uppercase}/u.test(word) && !/[\p{Lowercase}\p{Lt}]/u.test(word);
  let found = ".";
  if (DIGIT.test(word)) found = hasLetters ? "x9" : "9";
  else if (hasLetters && isUpper && [...word].length > 1) found = "X";
  else if (hasLetters) found = /^\p{Uppercase}/u.test(word) ? "Xx" : "x";
  return [found, ...["-", "/", "@"].filter((mark) => hasLetters && word.includes(mark))];
}

/** The words that a page carries, and how a word without a vector starts. */
export class Vocabulary {
  constructor(record) {
    this.record = record;
    this.dim = record.vectors.shape[1];
    this.places = new Map(record.words.map((word, n) => [word, n]));
    this.starts = new Map(record.features.map((name, n) => [name, n]));
  }

  /** Return X (n, d) of the tokens, the distinct ones that the page has no vector for, and those left out. */
  embed(tokens) {
    const unknown = [...new Set(tokens.filter((token) => this.placeOf(token) === undefined))];
    const kept = this.record.oov === "skip" ? tokens.filter((token) => !unknown.includes(token)) : tokens;
    const X = matrix(kept.length, this.dim);
    kept.forEach((token, i) => this.fill(rowOf(X, i), token));
    return { tokens: kept, X, unknown };
  }

  placeOf(token) {
    const form = forms(token).find((one) => this.places.has(one));
    return form === undefined ? undefined : this.places.get(form);
  }

  fill(row, token) {
    const place = this.placeOf(token);
    const known = place !== undefined;
    if (known) row.set(numbers(this.record.vectors).subarray(place * this.dim, (place + 1) * this.dim));
    const starts = known ? this.record.always : this.record.oov === "model";
    if (!starts) return;
    for (const name of features(token)) if (this.starts.has(name)) this.add(row, this.starts.get(name));
  }

  add(row, place) {
    const vectors = numbers(this.record.starts);
    for (let d = 0; d < this.dim; d++) row[d] += vectors[place * this.dim + d];
  }
}
