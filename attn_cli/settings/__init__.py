"""Settings: declared once, and checked.

Here is what to compute, and which settings fit together and fit a text; how it is shown is in `output`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_cli.core.masks import MASKS, mask_examples
from attn_cli.core.scores import SCORES
from attn_cli.errors import InputError, UsageError, did_you_mean, refuse, visible
from attn_cli.io.files import looks_like_file
from attn_cli.io.types import NamedTuple, dataclass, replace
from attn_cli.settings.declare import (
    ATTENTION,
    SHOWN,
    TEXT,
    VECTORS,
    as_typed as as_typed,
    check,
    declared as declared,
    size_of,
)
from attn_cli.settings.output import View as View

ROLES_HEADS = (  # the bundled heads of grammar; "mean" and "all" are of any model
    *("relations", "head", "subject", "object", "oblique", "modifier", "determiner", "possessor"),
    *("coordination", "previous", "next"),
)
LIKENESS = "likeness"  # the projection whose words look for words of like meaning


class Default(NamedTuple):
    """What a command shows of a text when nothing is asked, and why: commands, help and docs read this one table.

    It holds for the bundled vectors, and for no model on disk. A projection, a head of roles, other vectors or --heads
    that somebody asks for come first (`settings_of`).
    """

    projection: str
    head: str  # the main one of the projection
    why: str
    mask: str = "none"
    next: int = 0  # next words


ROLES = Default("roles", "relations", "heads of grammar: who belongs to whom, in any order of words")
DEFAULTS: dict[str, Default] = {
    "self": ROLES,
    "masked": Default(
        "language", "article", "guessing the next word is why the mask exists: so it is guessed", "causal", 5
    ),
    "cross": Default(LIKENESS, LIKENESS, "words look for words of like meaning, in another text"),
    "explain": ROLES._replace(
        why=f"{ROLES.why}; a pronoun that the head antecedent of roles-deep resolves comes first"
    ),
    "compare": ROLES._replace(why="as in self, so that one option is the only difference"),
    "page": ROLES._replace(why="one layer over word vectors: another sentence can be typed into the page"),
    "live": ROLES._replace(why="as in self: the mask that a key adds is the only difference"),
    "batch": ROLES._replace(why="one layer is quick: thousands of lines a second"),
}
USUAL = DEFAULTS["self"]
MOST_GUESSED = 512  # tokens; masked shows longer texts with roles, which takes a fraction of the time


def usual(field: str) -> str:
    """Return the usual value of a field of the table, and the others.

    >>> usual("mask")
    'none (causal in masked)'
    """
    found = {command: getattr(default, field) for command, default in DEFAULTS.items()}
    value = getattr(USUAL, field)
    others = ", ".join(f"{one} in {command}" for command, one in found.items() if one != value)
    return f"{value} ({others})" if others else str(value)


# Settings that a pretrained model replaces, and settings that have no effect with one, with the reason.
REPLACED_BY_MODEL = ("embedding", "projection", "tokenizer", "keep_punctuation")
NO_EFFECT_WITH_MODEL = {
    "dim": "it has vectors of its own",
    "seed": "nothing in it is random",
    "oov": "its tokenizer has an answer for every word",
    "heads": "it has heads of its own",
    "layout": "its files say how its weights are laid out",
    "positions": "it encodes positions in its own way",
    "round": "it is computed with the numbers in its files",
    **dict.fromkeys(("pad", "pad_side"), "one text is read, without padding"),
}
CONFLICTS_WITH_MODEL = (*REPLACED_BY_MODEL, *NO_EFFECT_WITH_MODEL)
MOST_NEXT = 50  # next words
ALL, MEAN, ROLLOUT = "all", "mean", "rollout"
WEIGHT, NORM, WITH_RESIDUAL = "weight", "norm", "norm-residual"  # what is measured of a link
BETWEEN = (ALL, "a-a", "a-b", "b-a", "b-b")  # parts of a pair of texts, from queries to keys
PIECES = ("join_pieces", "hide_special", "renormalize")
# What these need where a text is read: its own tokens are words already, and none of them frames it.
WITH_MODEL = {
    "join_pieces": "a model whose tokens are word pieces",
    "hide_special": "a model that adds special tokens",
    "renormalize": "a model whose special tokens are hidden",
    **dict.fromkeys(("pair", "between"), "a model that reads pairs of texts"),
    **dict.fromkeys(("next", "next_at"), "a model that says what comes next"),
}
# They choose rows, links, speed and what is refused, and change no number.
SHOWN_ONLY = ("query", "versus", "top", "full", "next", "next_at", "threads", "max_text", "max_word")
FILE, EMBEDDINGS = "NAME|FILE", ("word2vec", "random")
PROJECTIONS = ("roles", "roles-deep", "language", LIKENESS, "identity", "random")
LEARNED = f"{usual('projection')} with word2vec, random with random vectors, else identity"
LAYER = "Give a number from 0 to 100,000, all, or mean."
LAST = "the last; with -p language that of a named --head"
HEAD = f"{usual('head')}; {DEFAULTS['masked'].head} with -p language; else the first"
SIZE = "Give a number of bytes, as 500000, 512kB or 64MB."
TEMPERATURE = "Give a number above 0 (at least 1e-6): below 1 sharpens, above 1 flattens."
NEXT = f"{usual('next')}; 5 with --next-at all"


@dataclass(frozen=True)
class Settings:
    """What to compute. None leaves a setting to the command, the model or the file.

    >>> Settings(score="dto")
    Traceback (most recent call last):
    attn_cli.errors.SettingError: score cannot be 'dto'. Did you mean dot? Choose scaled, dot, cosine.
    """

    about = "How to split the text: English words, at spaces only, or characters."
    tokenizer: str = TEXT(about, "words", choices=("words", "whitespace", "characters"))
    keep_punctuation: bool = TEXT("Keep punctuation (tokenizer words only).", False)
    max_text: str = TEXT("Refuse a longer text.", "64MB", metavar="SIZE", form=size_of, hint=SIZE)
    max_word: str = TEXT("Refuse a longer token.", "1MB", metavar="SIZE", form=size_of, hint=SIZE)
    about = "Join a model's word pieces (##ing, Ġthe, ▁the) to words: sums over keys, means over queries."
    join_pieces: bool = TEXT(about, False)
    hide_special: bool = TEXT("Leave out [CLS], [SEP], <s>, padding and their like.", False)
    renormalize: bool = TEXT("Rescale each row to sum to one after tokens are hidden.", False)
    # Of a model on disk; typed with each text.
    about = "The second text of a pair, which an encoder reads in one sequence with TEXT."
    pair: str | None = TEXT(about, metavar="TEXT", has_variable=False)
    about = "Of a pair: only the weights from one text to one; a is the first, b the second."
    between: str = TEXT(about, ALL, choices=BETWEEN, has_variable=False)
    about = (
        "Word vectors: word2vec (bundled), random, a file (text, .bin, .kv and others), or an imported name."
    )
    embedding: str | None = VECTORS(about, short="-e", metavar=FILE, examples=EMBEDDINGS, unset="word2vec")
    dim: int | None = VECTORS("Numbers in a random vector.", bounds=(1, 100_000), unset="4")
    seed: int = VECTORS("Seed of everything random.", 0, bounds=(0, 2**63 - 1))
    oov: str | None = VECTORS(
        "For a token without a vector: use the learned model's vector, guess one from parts of its spelling, use "
        "zeros, a random vector or that of the closest spelling, drop the token, or stop.",
        choices=("model", "subword", "zero", "random", "nearest", "skip", "error"),
        unset="model with a learned projection, subword with likeness, else zero",
    )
    about = (
        "A pretrained model: its folder or GGUF file, its name in the local Hugging Face cache, or ollama:NAME; with "
        "its own tokens, vectors and heads."
    )
    model: str | None = VECTORS(about, short="-m", metavar="DIR|NAME")
    about = "W_q, W_k, W_v: roles, roles-deep, language or likeness (learned), identity, random, or a file."
    projection: str | None = ATTENTION(about, short="-p", metavar=FILE, examples=PROJECTIONS, unset=LEARNED)
    about = "Split the projection's columns into N heads."
    heads: int | None = ATTENTION(about, bounds=(1, 100_000), unset="1")
    about = "Layer to show: a number (0 is the first layer) or all; for saved weights also mean."
    layer: str | int | None = ATTENTION(
        about, metavar="N|all|mean", bounds=(0, 100_000), words=(ALL, MEAN), hint=LAYER, unset=LAST
    )
    about = "Which head to show: its name or number, mean, all, or rollout (through a model's layers)."
    head: str | None = ATTENTION(about, metavar="NAME", examples=(*ROLES_HEADS, MEAN, ALL), unset=HEAD)
    about = "Layout of weights from files: in-out is x W, out-in W x."
    layout: str | None = ATTENTION(about, choices=("in-out", "out-in"), unset="in-out")
    score: str | None = ATTENTION(
        lambda: f"{', '.join(one.help for one in SCORES.values())}.", choices=SCORES.keys, unset="scaled"
    )
    about = "Divide scores by T > 0 before the softmax."
    temperature: float = ATTENTION(
        about, 1.0, short="-t", metavar="T", bounds=(1e-6, math.inf), hint=TEMPERATURE
    )
    mask: str | None = ATTENTION(
        lambda: f"{', '.join(MASKS)}, or a file.", metavar=FILE, examples=mask_examples, unset=usual("mask")
    )
    about = "What True means in a mask file; required with one."
    mask_true: str | None = ATTENTION(about, choices=("allowed", "blocked"))
    # A forgotten attn.toml must never take words away.
    about = "Hide this token from every query: all its occurrences, or the one at this index. Repeatable."
    without: tuple[str, ...] = ATTENTION(about, (), metavar="TOKEN", is_repeated=True, has_variable=False)
    about = "Compute a model anew without this head (layer.head), or a layer's network (0.mlp). Repeatable."
    knock_out: tuple[str, ...] = ATTENTION(about, (), metavar="L.H", is_repeated=True, has_variable=False)
    about = "What a head that is knocked out gives: zero, or its mean over the text."
    knock_out_with: str = ATTENTION(about, "zero", choices=("zero", MEAN), has_variable=False)
    pad: int | None = ATTENTION("Add N padding tokens, which no token may attend to.", bounds=(1, 10_000))
    about = "Where padding goes: after the text, or before it."
    pad_side: str = ATTENTION(about, "right", choices=("right", "left"))
    about = "What is added to X for each token's position."
    positions: str | None = VECTORS(about, choices=("none", "sinusoidal"), unset="none")
    about = "Round the inputs (vectors and weights) to N digits, then compute."
    round: int | None = ATTENTION(about, bounds=(0, 4))
    about = "Only this token's rows (or the row of this number), by hand."
    query: str | None = SHOWN(about, short="-q", metavar="TOKEN", in_files=False)
    about = "Explain why a row prefers its strongest key to this one (in explain, or with -q)."
    versus: str | None = SHOWN(about, metavar="TOKEN", has_variable=False)
    about = (
        "Show the weights, or what comes of them: norm, the length of what each word adds through its value and W_o; "
        "norm-residual, that of all heads with the residual and the norm after it."
    )
    measure: str = SHOWN(about, WEIGHT, choices=(WEIGHT, NORM, WITH_RESIDUAL), has_variable=False)
    top: int | None = SHOWN("Keep the K strongest links of each row.", metavar="K", bounds=(1, 1_000_000))
    full: bool = SHOWN("Keep the whole matrix, even above a million weights.", False)
    about = (
        f"With -p language or --model: the K likeliest next tokens (at most {MOST_NEXT}), or fillers of [MASK], "
        "with their probabilities; with -p language, all words without a vector are pooled as [unknown]."
    )
    next: int | None = SHOWN(about, metavar="K", bounds=(0, MOST_NEXT), unset=NEXT)
    about = "Predict the next token after the last token only, or after every token."
    next_at: str = SHOWN(about, "last", choices=("last", "all"))
    about = "Number type to compute with; float32 is faster and takes half the memory."
    dtype: str = ATTENTION(about, "float64", choices=("float64", "float32"))
    about = "Threads for large work, at most."
    threads: int | None = ATTENTION(about, bounds=(1, 1024), unset="one per processor")
    del about  # the help of the setting below it

    every_head: bool = False  # compute all heads, whichever is shown: a page has them to choose from

    def __post_init__(self) -> None:
        check(self)

    @property
    def kind_of_text(self) -> str:
        """The kind of attention of one text: `masked` with a mask, else `self`, which asks for a model's own kind."""
        return "masked" if self.model is None and self.mask not in (None, "none") else "self"


UNSET = Settings()
PURPOSES = {"--query": "look from", "--versus": "look at", "--swap": "replace", "--without": "switch off"}


def text_limit(settings: Settings) -> int:
    """Return how many bytes a text may have."""
    return size_of(settings.max_text) or 0


def check_length(size: int, settings: Settings) -> None:
    """Raise InputError if a text of so many bytes is too long."""
    if size > (most := text_limit(settings)):
        hint = "Give a part of it, or allow more with --max-text."
        raise InputError(f"The text has more than {most:,} bytes.", hint)


def check_words(tokens: Sequence[str], settings: Settings) -> None:
    """Raise InputError if a token is too long."""
    most = size_of(settings.max_word) or 0
    for place, token in enumerate(tokens):
        if 4 * len(token) > most and len(token.encode("utf-8", "surrogatepass")) > most:
            said = f"Token {place} ({visible(token[:20])}...) has more than {most:,} bytes."
            raise InputError(said, "Are there spaces between the words? Allow more with --max-word.")


def check_model(settings: Settings) -> None:
    """Raise UsageError if a setting was made whose place a pretrained model takes."""
    for name in (*NO_EFFECT_WITH_MODEL, *REPLACED_BY_MODEL):  # positions come with a projection of their own
        if getattr(settings, name) != getattr(UNSET, name):
            raise beside_model(name)


def check_without_model(settings: Settings, says_words: bool = False) -> None:
    """Raise UsageError if something was asked for that only a pretrained model has, or one that `says_words`."""
    for name, what in WITH_MODEL.items():
        is_next, option = name in ("next", "next_at"), "--" + name.replace("_", "-")
        is_set = getattr(settings, name) not in (getattr(UNSET, name), 0) and not (is_next and says_words)
        hint = "Give one with -p language or --model." if is_next else "Give one with --model."
        refuse(is_set, f"{option} needs {what}.", hint, option)


def check_layered(settings: Settings) -> None:
    """Raise UsageError if all layers were asked for where there are none, or the mean of layers that are computed."""
    hint = "Try --layer all, or attn show FILE --layer mean."
    refuse(settings.layer == MEAN, "--layer mean applies only to saved weights.", hint, "--layer")
    hint = "Give one with --model, or -p roles-deep or language."
    refuse(settings.layer == ALL, "--layer all needs a model that has layers.", hint, "--layer")


def check_shaping(settings: Settings) -> None:
    """Raise UsageError if rows are to be renormalized from which nothing is left out."""
    is_whole = settings.renormalize and not settings.hide_special and settings.between == ALL
    refuse(is_whole, "--renormalize requires --hide-special, or --between.", option="--renormalize")


def check_measure(settings: Settings) -> Settings:
    """Return the settings, with the mean head where a layer as a whole is measured; refuse what has no norms."""
    is_whole = settings.measure == WITH_RESIDUAL
    is_other = settings.head not in (None, MEAN)
    refused = {
        "--head rollout, which has no values": settings.head == ROLLOUT,
        "--knock-out, whose heads are still in the sum": is_whole and settings.knock_out,
        "--renormalize: rows of norms do not sum to one": settings.renormalize,
        f"--head {settings.head}: it is of the layer as a whole": is_whole and is_other,
    }
    for what, is_given in refused.items():
        said = f"--measure {settings.measure} does not apply to {what}."
        refuse(is_given and settings.measure != WEIGHT, said, "Leave one of them out.", "--measure")
    return replace(settings, head=MEAN) if is_whole else settings


def beside_model(name: str) -> UsageError:
    """Return the error of a setting beside --model."""
    option = "--" + name.replace("_", "-")
    message = f"--model takes the place of {option}."
    if name in NO_EFFECT_WITH_MODEL:
        message = f"{option} changes nothing in a model on disk: {NO_EFFECT_WITH_MODEL[name]}."
    return UsageError(message, f"Leave out {option}, or --model.", "--model")


def unused(settings: Settings, words: bool = True, learned: bool = False, has_x: bool = True) -> list[str]:
    """Return a note for each option that was set although, with these others, it changes nothing.

    `words` says whether there is a text, rather than matrices. `learned` says whether the projection is a learned
    model, `has_x` whether there are vectors X that Q, K and V are made of.
    """
    drawn = settings.embedding == "random"
    from_file = settings.projection not in (None, "identity", "random", LIKENESS) and not learned
    by_default = settings.embedding in (None, "word2vec") and settings.projection is None and words
    idle = {  # by option: where it counts for nothing, and what is said then
        "dim": (not drawn, "only with random vectors"),
        "layout": (words and not from_file, "only with weights from a file"),
        "pad_side": (not settings.pad, "only with --pad"),
        "mask_true": (not looks_like_file(str(settings.mask)), "only with a mask from a file"),
        "tokenizer": (not words, "only with a text"),
        "heads": (by_default, ""),
        "layer": (not learned, "only with a learned model"),
        "positions": (not has_x, "only where X is known, not with Q, K and V"),
        "oov": (drawn or not words, "only with word vectors"),
        "keep_punctuation": (not words or settings.tokenizer != "words", "only with --tokenizer words"),
    }
    unset = {name: (getattr(UNSET, name), "none" if name == "positions" else None) for name in idle}
    heads = "--heads splits the identity projection; the heads of roles, the default, are its own."
    return [
        f"--{name.replace('_', '-')} has an effect {where}." if where else heads
        for name, (is_idle, where) in idle.items()
        if is_idle and getattr(settings, name) not in unset[name]
    ]


def find_rows(query: str, tokens: Sequence[str], option: str = "--query") -> tuple[int, ...]:
    """Return the places that `query` names: a token as written, else case-blind, else an index."""
    for form in (str, str.casefold):
        if rows := tuple(i for i, token in enumerate(tokens) if form(token) == form(query)):
            return rows
    if query.isascii() and query.isdigit() and len(query) < 10 and int(query) < len(tokens):
        return (int(query),)
    near = "" if query.isdigit() else did_you_mean(query, tokens[:2000])
    hint = f"{near}Give a token of the text, or its number from 0 to {len(tokens) - 1}."
    raise UsageError(f"There is no token {visible(query[:60])!r} to {PURPOSES[option]}.", hint, option)


def settings_of(command: str, settings: Settings) -> Settings:
    """Return the settings with what the command shows when nothing is asked (DEFAULTS); what was asked stays.

    A head of roles that is named selects roles; so does any --head or --layer where the default has one head.

    >>> settings_of("masked", Settings()).mask
    'causal'
    """
    usual, default = USUAL.projection, DEFAULTS[command].projection
    has_one = default == LIKENESS and (
        settings.layer is not None or settings.head not in (None, LIKENESS) or settings.oov == "model"
    )
    asks_roles = has_one or settings.head in ROLES_HEADS
    if default != usual and leaves_projection_open(settings) and not asks_roles:
        settings = replace(settings, projection=default)
    return settings_for_masked(settings) if command == "masked" else settings


def leaves_projection_open(settings: Settings) -> bool:
    """Tell whether nothing was said that chooses a projection: then it is the command's default."""
    is_open = settings.projection is None and settings.heads is None and settings.positions != "sinusoidal"
    return is_open and settings.model is None and settings.embedding in (None, "word2vec")


def settings_for_masked(settings: Settings) -> Settings:
    """Return the settings with a causal mask, or with a pretrained model's own and what it says comes next."""
    if settings.model is not None:
        return with_next_words(settings)
    return replace(settings, mask=DEFAULTS["masked"].mask) if settings.mask is None else settings


def with_next_words(settings: Settings) -> Settings:
    """Return the settings with the usual number of next words, where none is said."""
    return replace(settings, next=DEFAULTS["masked"].next) if settings.next is None else settings


def with_words_at_each(settings: Settings) -> Settings:
    """Return the settings with a number of next words where they are wanted after each token; refuse none."""
    is_none = settings.next == 0 and settings.next_at == ALL
    said = "--next-at all has nothing to show with --next 0."
    refuse(is_none, said, "Try --next 3, or leave out --next-at.", "--next-at")
    return with_next_words(settings) if settings.next_at == ALL else settings
