// The numbers of the page: each array lies in a script element of its own, as base64, and is read when it is needed.

// A matrix is {rows, columns, data}, row after row; a stored array {id, type, shape}: where it lies, and what it is.

/** Return a matrix, of zeros where no numbers are given. */
export function matrix(rows, columns, data = new Float64Array(rows * columns)) {
  return { rows, columns, data };
}

/** Return one row of a matrix, without a copy. */
export function rowOf(M, i) {
  return M.data.subarray(i * M.columns, (i + 1) * M.columns);
}

const READERS = {
  f64: (bytes) => new Float64Array(bytes.buffer),
  f32: (bytes) => Float64Array.from(new Float32Array(bytes.buffer)),
  f16: (bytes) => Float64Array.from(new Uint16Array(bytes.buffer), fromHalf),
  f48: (bytes) => withRest(new DataView(bytes.buffer), bytes.length / 6),
  u8: (bytes) => bytes,
};
const kept = new Map();

/** Return the numbers that lie in the page under a name, decoded once; null for null. */
export function numbers(stored) {
  if (!stored) return null;
  if (!kept.has(stored.id)) kept.set(stored.id, READERS[stored.type](bytesOf(stored.id)));
  return kept.get(stored.id);
}

/** Unpack those of some stored arrays that are packed, so that `numbers` has them. */
export async function unpack(arrays) {
  await Promise.all(packed(arrays).map(async ({ id, type }) => {
    const stream = new Blob([bytesOf(id)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    kept.set(id, READERS[type](new Uint8Array(await new Response(stream).arrayBuffer())));
  }));
}

/** Return those of some stored arrays that have to be unpacked first. */
export const packed = (arrays) => arrays.filter((one) => one?.packed && !kept.has(one.id));

/** Return a stored array as a matrix: a row of numbers where it has one axis; null for null. */
export function stored(one) {
  if (!one) return null;
  const columns = one.shape[one.shape.length - 1];
  return matrix(one.shape.length > 1 ? one.shape[0] : 1, columns, numbers(one));
}

/** Return numbers of which each is a float32, and all float32s are followed by 2^24 times what is left, as float16. */
function withRest(view, count) {
  return Float64Array.from({ length: count }, (_, n) =>
    view.getFloat32(n * 4, true) + fromHalf(view.getUint16(count * 4 + n * 2, true)) * 2 ** -24);
}

function bytesOf(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  return bytes;
}

/** Return the number that 16 bits stand for (IEEE 754 half precision). */
export function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
