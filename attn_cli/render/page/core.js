// Attention, as attn_cli/core has it: Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V. Rows are queries.
import { matrix, rowOf } from "./arrays.js";

/** Return X W + b: X is (n, d), W (d, d_k), b (d_k) or null. A W of null changes nothing. */
export function project(X, W, b) {
  if (!W) return X;
  const made = matrix(X.rows, W.columns);
  for (let i = 0; i < X.rows; i++) {
    const out = rowOf(made, i);
    if (b) out.set(b.data);
    for (let c = 0; c < X.columns; c++) {
      const x = X.data[i * X.columns + c];
      if (x === 0) continue;
      const w = rowOf(W, c);
      for (let d = 0; d < out.length; d++) out[d] += x * w[d];
    }
  }
  return made;
}

export function dot(q, k) {
  let sum = 0;
  for (let d = 0; d < q.length; d++) sum += q[d] * k[d];
  return sum;
}

/** Return each row divided by its length; a row of zeros stays. */
export function unit(X) {
  const made = matrix(X.rows, X.columns, X.data.slice());
  for (let i = 0; i < X.rows; i++) {
    const row = rowOf(made, i);
    const largest = row.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1;
    for (let d = 0; d < row.length; d++) row[d] /= largest; // so that no square overflows
    const length = Math.sqrt(dot(row, row)) || 1;
    for (let d = 0; d < row.length; d++) row[d] /= length;
  }
  return made;
}

/** Return a score function: the sum of `term` over two rows, once both went through `rows`. */
function sumOf(term, rows) {
  const of = (queries, keys) => {
    const [Q, K] = [rows(queries), rows(keys)];
    const made = matrix(Q.rows, K.rows);
    for (let i = 0; i < Q.rows; i++) {
      const q = rowOf(Q, i);
      for (let j = 0; j < K.rows; j++) {
        const k = rowOf(K, j);
        let sum = 0;
        for (let d = 0; d < q.length; d++) sum += term(q[d], k[d]);
        made.data[i * K.rows + j] = sum;
      }
    }
    return made;
  };
  return { of, term, rows };
}

const same = (X) => X;

/** The score functions of core/scores.py, and whether scores, and a learned distance, are divided by sqrt(d_k). */
export const SCORES = {/* scores */};

/** Return what is added for each distance, (n_q, n_k): (q.r + b) factor, r and b those of the clipped distance. */
export function positionTerm(Q, R, b, factor, n_k) {
  const made = matrix(Q.rows, n_k);
  const reach = (R.rows - 1) / 2;
  for (let i = 0; i < Q.rows; i++) {
    const q = rowOf(Q, i);
    const byDistance = Array.from({ length: R.rows }, (_, at) => (dot(q, rowOf(R, at)) + b.data[at]) * factor);
    for (let j = 0; j < n_k; j++) {
      made.data[i * n_k + j] = byDistance[Math.max(-reach, Math.min(reach, j - i)) + reach];
    }
  }
  return made;
}

/** The mask rules of core/masks.py, by how many numbers follow their name: whether query i may look at key j. */
export const MASKS = {/* masks */};

/** Return the rule of a name such as `window:2`; undefined where there is none. */
export function ruleNamed(name) {
  const [stem, ...numbers] = name.split(":");
  return Object.hasOwn(MASKS, stem) && numbers.every((n) => /^\d{1,9}$/.test(n)) ? MASKS[stem][numbers.length] : undefined;
}

/** Return which key each query may look at, (n_q n_k) of 1 and 0; null where a name has no rule here. */
export function maskNamed(name, n_q, n_k) {
  const rule = ruleNamed(name);
  if (!rule) return null;
  const numbers = name.split(":").slice(1).map(Number);
  const allowed = new Uint8Array(n_q * n_k);
  for (let i = 0; i < n_q; i++) {
    for (let j = 0; j < n_k; j++) allowed[i * n_k + j] = rule(i, j, n_q, n_k, ...numbers) ? 1 : 0;
  }
  return allowed;
}

/** Return exp(s_j) / sum of exp(s_j) along each row, over the allowed keys; a row without any gives zeros.
 *  The largest score of a row is subtracted first: it cancels out, and exp cannot overflow. A sink joins each sum. */
export function softmax(scores, allowed, sink = null) {
  const weights = matrix(scores.rows, scores.columns);
  for (let i = 0; i < scores.rows; i++) {
    const row = rowOf(scores, i);
    const out = rowOf(weights, i);
    const may = (j) => !allowed || allowed[i * row.length + j];
    let largest = -Infinity;
    for (let j = 0; j < row.length; j++) if (may(j) && row[j] > largest) largest = row[j];
    let total = 0;
    for (let j = 0; j < row.length; j++) if (may(j)) total += out[j] = Math.exp(row[j] - largest);
    if (total && sink !== null) total += Math.exp(sink - largest);
    if (total) for (let j = 0; j < row.length; j++) out[j] /= total;
  }
  return weights;
}

/** Return weights V. */
export function mix(weights, V) {
  const output = matrix(weights.rows, V.columns);
  for (let i = 0; i < weights.rows; i++) {
    const out = rowOf(output, i);
    for (let j = 0; j < V.rows; j++) {
      const share = weights.data[i * weights.columns + j];
      if (share === 0) continue;
      const v = rowOf(V, j);
      for (let d = 0; d < out.length; d++) out[d] += share * v[d];
    }
  }
  return output;
}

/** Return c tanh(s / c) of each score, or the scores themselves where there is no cap c. */
function capAt(cap, scores) {
  return cap ? mapped(scores, (s) => cap * Math.tanh(s / cap)) : scores;
}

/** Return what turning queries and keys by their places adds to the scaled scores. */
function turnedTerm({ q, k, turned }, score, factor) {
  const plain = score.of(q, k);
  const whole = score.of(turned.q, turned.k);
  return mapped(whole, (s, at) => (s - plain.data[at]) * factor);
}

function mapped(M, change) {
  return matrix(M.rows, M.columns, M.data.map(change));
}

/**
 * Compute one head's attention and keep every step. `head` has q, k, v; R and b where it learned distances (or
 * `distance` (n_q, n_k), which is q.r + b made ready); `bias` (n_q, n_k) where one was given. `settings` has score, scale (null for the score's own), temperature, softcap,
 * `biasTimes`, which the bias is multiplied by, and `allowed`, which is null where there is no mask. `edited` holds scores typed by hand, by i n_k + j.
 */
export function attention(head, settings, edited = new Map()) {
  const { q, k, v } = head;
  const score = SCORES[settings.score];
  const own = score.isScaled ? 1 / Math.sqrt(q.columns) : 1;
  const scale = settings.scale ?? own;
  const scores = score.of(q, k);
  for (const [at, value] of edited) scores.data[at] = value;
  const factor = scale / settings.temperature;
  const scaled = mapped(scores, (s) => s * factor);
  let position = head.bias ? mapped(head.bias, (s) => s * (settings.biasTimes ?? 1)) : null;
  const beside = (score.isPositionScaled ? 1 / Math.sqrt(q.columns) : 1) / settings.temperature;
  if (head.R) position = positionTerm(q, head.R, head.b, beside, k.rows);
  if (head.distance) position = mapped(head.distance, (s) => s * beside);
  if (head.turned) position = turnedTerm(head, score, factor);
  const add = (M) => (position ? mapped(M, (s, at) => s + position.data[at]) : M);
  const capped = capAt(head.softcap && head.softcap / settings.temperature, head.turned ? add(scaled) : scaled);
  const summed = head.turned ? capped : add(capped);
  const sink = head.sink == null ? null : head.sink / settings.temperature;
  const weights = softmax(summed, settings.allowed, sink);
  return { scores, scaled, capped, position, summed, sink, weights, output: v ? mix(weights, v) : null, scale };
}
