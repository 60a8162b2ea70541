"""What fits settings and what does not: idle options, texts and tokens too long, rows that a query names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attn_cli.errors import InputError, UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.io.files import looks_like_file
from attn_cli.settings.declare import size_of
from attn_cli.settings.settings import (
    ALL,
    LIKENESS,
    MEAN,
    NO_EFFECT_WITH_MODEL,
    REPLACED_BY_MODEL,
    ROLES_HEADS,
    ROLLOUT,
    USUAL,
    WEIGHT,
    WITH_MODEL,
    WITH_RESIDUAL,
    Settings,
)
from attn_cli.settings.settings import DEFAULTS as BY_COMMAND

DEFAULTS = Settings()
NEXT_WORDS = BY_COMMAND["masked"].next
PURPOSES = {"--query": "look from", "--versus": "look at", "--swap": "replace", "--without": "switch off"}


def text_limit(settings: Settings) -> int:
    """Return how many bytes a text may have."""
    return size_of(settings.max_text) or 0


def check_length(size: int, settings: Settings) -> None:
    """Raise InputError if a text of so many bytes is too long."""
    if size > text_limit(settings):
        said = f"The text has more than {text_limit(settings):,} bytes."
        raise InputError(said, "Give a part of it, or allow more with --max-text.")


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
        if getattr(settings, name) != getattr(DEFAULTS, name):
            raise beside_model(name)


def check_without_model(settings: Settings, says_words: bool = False) -> None:
    """Raise UsageError if something was asked for that only a pretrained model has, or one that `says_words`."""
    for name in WITH_MODEL:
        is_next = name in ("next", "next_at")
        if getattr(settings, name) not in (getattr(DEFAULTS, name), 0) and not (is_next and says_words):
            option = "--" + name.replace("_", "-")
            hint = "Give one with -p language or --model." if is_next else "Give one with --model."
            raise UsageError(f"{option} needs {WITH_MODEL[name]}.", hint, option)


def check_next(settings: Settings) -> None:
    """Raise UsageError if no next words are to be shown, and these after each token."""
    if settings.next == 0 and settings.next_at == ALL:
        said = "--next-at all has nothing to show with --next 0."
        raise UsageError(said, "Try --next 3, or leave out --next-at.", "--next-at")


def check_layered(settings: Settings) -> None:
    """Raise UsageError if all layers were asked for where there are none, or the mean of layers that are computed."""
    if settings.layer == MEAN:
        hint = "Try --layer all, or attn show FILE --layer mean."
        raise UsageError("--layer mean applies only to saved weights.", hint, "--layer")
    if settings.layer == ALL:
        hint = "Give one with --model, or -p roles-deep or language."
        raise UsageError("--layer all needs a model that has layers.", hint, "--layer")


def check_shaping(settings: Settings) -> None:
    """Raise UsageError if rows are to be renormalized from which nothing is left out."""
    if settings.renormalize and not settings.hide_special and settings.between == ALL:
        raise UsageError("--renormalize requires --hide-special, or --between.", option="--renormalize")


def check_measure(settings: Settings) -> Settings:
    """Return the settings, with the mean head where a layer as a whole is measured; refuse what has no norms."""
    is_whole = settings.measure == WITH_RESIDUAL
    refused = {
        "--head rollout, which has no values": settings.head == ROLLOUT,
        "--knock-out, whose heads are still in the sum": is_whole and settings.knock_out,
        "--renormalize: rows of norms do not sum to one": settings.renormalize,
        f"--head {settings.head}: it is of the layer as a whole": is_whole
        and settings.head not in (None, MEAN),
    }
    for what, is_given in refused.items():
        if is_given and settings.measure != WEIGHT:
            said = f"--measure {settings.measure} does not apply to {what}."
            raise UsageError(said, "Leave one of them out.", "--measure")
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
    mask_file = settings.mask is not None and looks_like_file(settings.mask)
    idle = {
        "--dim has an effect only with random vectors.": settings.dim is not None and not drawn,
        "--layout has an effect only with weights from a file.": words and settings.layout and not from_file,
        "--pad-side has an effect only with --pad.": not settings.pad
        and settings.pad_side != DEFAULTS.pad_side,
        "--mask-true has an effect only with a mask from a file.": settings.mask_true and not mask_file,
        "--tokenizer has an effect only with a text.": not words and settings.tokenizer != DEFAULTS.tokenizer,
        "--heads splits the identity projection; the heads of roles, the default, are its own.": by_default
        and settings.heads is not None,
        "--layer has an effect only with a learned model.": settings.layer is not None and not learned,
        "--positions has an effect only where X is known, not with Q, K and V.": settings.positions
        == "sinusoidal"
        and not has_x,
        "--oov has an effect only with word vectors.": (drawn or not words) and settings.oov != DEFAULTS.oov,
        "--keep-punctuation has an effect only with --tokenizer words.": settings.keep_punctuation
        and (not words or settings.tokenizer != "words"),
    }
    return [note for note, is_idle in idle.items() if is_idle]


def find_rows(query: str, tokens: Sequence[str], option: str = "--query") -> tuple[int, ...]:
    """Return the places that `query` names: a token as written, else case-blind, else an index."""
    rows = tuple(i for i, token in enumerate(tokens) if token == query)
    rows = rows or tuple(i for i, token in enumerate(tokens) if token.casefold() == query.casefold())
    if rows:
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
    usual, default = USUAL.projection, BY_COMMAND[command].projection
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
    return replace(settings, mask=BY_COMMAND["masked"].mask) if settings.mask is None else settings


def with_next_words(settings: Settings) -> Settings:
    """Return the settings with the usual number of next words, where none is said."""
    return replace(settings, next=NEXT_WORDS) if settings.next is None else settings


def with_words_at_each(settings: Settings) -> Settings:
    """Return the settings with a number of next words where they are wanted after each token; refuse none."""
    check_next(settings)
    return with_next_words(settings) if settings.next_at == ALL else settings
