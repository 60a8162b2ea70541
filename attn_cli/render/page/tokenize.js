// A text to tokens, as attn_cli/text/tokenize.py does it: English words as in treebanks, or at spaces.

const LETTER = "[\\p{L}\\p{N}\\p{M}]";
const SYMBOL = "[\\p{S}\\p{Co}\\p{Cn}][\\p{M}\\u{1F3FB}-\\u{1F3FF}\\u{E0020}-\\u{E007F}]*";
const PIECE = new RegExp(
  [
    `${LETTER}+(?:['’.,_-]${LETTER}+)*`, // a word
    "[\\u{1F1E6}-\\u{1F1FF}]{2}", // a flag
    `${SYMBOL}(?:\\u200D${SYMBOL})*`, // a symbol, an emoji
    "\\.+|-+|!+|\\?+|\\*+", // a run of one mark, as treebanks have it: "...", "--"
    "[^\\p{L}\\p{N}\\p{M}\\t-\\r\\p{Z}]", // any other mark, and controls
  ].join("|"),
  "gu",
);
const CLITICS = ["n't", "'re", "'ve", "'ll", "'s", "'m", "'d"];

/** Return the tokens of a text and the marks that were dropped, both in order. */
export function tokenize(text, tokenizer = "words", keepPunctuation = false) {
  if (tokenizer === "whitespace") return { tokens: text.split(/[\t-\r\p{Z}]+/u).filter(Boolean), dropped: [] };
  const tokens = [];
  const dropped = [];
  for (const piece of text.match(PIECE) || []) {
    if (/^[\p{L}\p{N}]/u.test(piece)) tokens.push(...splitClitics(piece));
    else if (/^[\p{M}\p{S}\p{Co}\p{Cn}]/u.test(piece) || (keepPunctuation && /^\p{P}/u.test(piece))) tokens.push(piece);
    else dropped.push(piece);
  }
  return { tokens, dropped };
}

/** Split English clitics off the end of a word: couldn't've -> could n't 've. */
function splitClitics(word) {
  const clitics = [];
  let end = word.length;
  for (;;) {
    const tail = word.slice(Math.max(0, end - 3), end).toLowerCase().replaceAll("’", "'");
    const found = CLITICS.find((clitic) => tail.endsWith(clitic) && clitic.length < end);
    if (!found) return [word.slice(0, end), ...clitics.reverse()];
    clitics.push(word.slice(end - found.length, end));
    end -= found.length;
  }
}
