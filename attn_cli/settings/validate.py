"""What fits settings and what does not: idle options, texts and tokens too long, rows that a query names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attn_cli.errors import InputError, UsageError, did_you_mean, refuse, visible
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
        if getattr(settings, name) != getattr(DEFAULTS, name):
            raise beside_model(name)


def check_without_model(settings: Settings, says_words: bool = False) -> None:
    """Raise UsageError if something was asked for that only a pretrained model has, or one that `says_words`."""
    for name, what in WITH_MODEL.items():
        is_next, option = name in ("next", "next_at"), "--" + name.replace("_", "-")
        is_set = getattr(settings, name) not in (getattr(DEFAULTS, name), 0) and not (is_next and says_words)
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
    drawn, masked = settings.embedding == "random", settings.mask is not None
    from_file = settings.projection not in (None, "identity", "random", LIKENESS) and not learned
    by_default = settings.embedding in (None, "word2vec") and settings.projection is None and words
    idle = {  # by option: where it counts for nothing, and what is said then
        "dim": (not drawn, "only with random vectors"),
        "layout": (words and not from_file, "only with weights from a file"),
        "pad_side": (not settings.pad, "only with --pad"),
        "mask_true": (not (masked and looks_like_file(str(settings.mask))), "only with a mask from a file"),
        "tokenizer": (not words, "only with a text"),
        "heads": (by_default, ""),
        "layer": (not learned, "only with a learned model"),
        "positions": (not has_x, "only where X is known, not with Q, K and V"),
        "oov": (drawn or not words, "only with word vectors"),
        "keep_punctuation": (not words or settings.tokenizer != "words", "only with --tokenizer words"),
    }
    unset = {name: (getattr(DEFAULTS, name), "none" if name == "positions" else None) for name in idle}
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
    is_none = settings.next == 0 and settings.next_at == ALL
    said = "--next-at all has nothing to show with --next 0."
    refuse(is_none, said, "Try --next 3, or leave out --next-at.", "--next-at")
    return with_next_words(settings) if settings.next_at == ALL else settings
