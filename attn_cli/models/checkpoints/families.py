"""Each family of models by the name that config.json gives it. A new family is a new entry of FAMILIES."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attn_cli.errors import InputError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints import decoders, encoders, translators
from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.describe import Model

FAMILIES: dict[str, Callable[[Config], Model]] = {
    "bert": encoders.bert,
    "roberta": encoders.roberta,
    "xlm-roberta": encoders.roberta,
    "camembert": encoders.roberta,
    "distilbert": encoders.distilbert,
    "electra": encoders.electra,
    "albert": encoders.albert,
    "modernbert": encoders.modernbert,
    "gpt2": decoders.gpt2,
    "gpt_neo": decoders.gpt_neo,
    "gpt_neox": decoders.gpt_neox,
    "opt": decoders.opt,
    "llama": decoders.llama,
    "mistral": partial(decoders.llama, windows=lambda n: True),
    "qwen2": decoders.qwen,
    "qwen3": partial(decoders.qwen, names=decoders.LLAMA | decoders.QK_NORM),
    "smollm3": decoders.qwen,
    "gemma": partial(decoders.llama, tied=True, gemma=True),
    "gemma2": partial(
        decoders.llama, names=decoders.GEMMA2, windows=lambda n: n % 2 == 0, tied=True, gemma=True
    ),
    "gemma3_text": decoders.gemma3,
    "gemma3": lambda c: decoders.gemma3(c.part("text_config")),
    "t5": translators.t5,
    "mt5": translators.t5,
    "bart": translators.bart,
    "marian": partial(translators.bart, sinusoids=True),
}


def describe(config: Config) -> Model:
    """Return the description of a config.json's model; raise InputError if its family is not known."""
    family = config.word("model_type")
    if family not in FAMILIES:
        raise InputError(
            f"{config.where}: attn does not know models of the type {visible(family)[:60]!r}.",
            f"{did_you_mean(family, FAMILIES)}It knows {', '.join(FAMILIES)}.",
        )
    return FAMILIES[family](config)
