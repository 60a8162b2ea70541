"""The mask of a run: the one asked for, or the one given, joined with padding."""

from __future__ import annotations

from attn_cli.core import masks
from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import looks_like_file, regular
from attn_cli.pipeline.embed import Inputs
from attn_cli.settings.settings import Settings


def wanted_mask(settings: Settings, given: object, inputs: Inputs, name: str = "") -> masks.Mask | None:
    """Return the mask that is wanted, joined with padding; a stated one states the text's own tokens."""
    query, key = inputs.query, inputs.key
    mask = stated_mask(settings, given, len(query.own), len(key.own), name)
    if not key.padding:
        return mask
    n_q, n_k = len(query.tokens), len(key.tokens)
    if mask is not None and mask.array is None:
        mask = mask._replace(n_q=n_q, n_k=n_k)
    elif mask is not None:
        mask = masks.widened(mask, n_q, n_k, query.own, key.own)
    return masks.with_padding(mask, n_q, n_k, key.padding)


def stated_mask(settings: Settings, given: object, n_q: int, n_k: int, name: str) -> masks.Mask | None:
    """Return the mask of the settings, by name or from a file, else the one that `name` gives."""
    wanted = settings.mask
    if wanted is None and given is not None:
        if not isinstance(given, str):
            from attn_cli.inputs.mask_file import mask_from_values  # only a file states one

            return mask_from_values(name, given, "allowed", n_q, n_k)
        try:
            return masks.named(given, n_q, n_k)
        except UsageError as error:
            raise InputError(f"{name}: {error.message}", error.hint) from None
    if wanted is None or not looks_like_file(wanted):
        return masks.named("none" if wanted is None else wanted, n_q, n_k)
    regular(wanted)
    if settings.mask_true is None:
        raise UsageError(
            "A mask file needs --mask-true allowed or --mask-true blocked: what does True mean in it?",
            "True is 'may attend' in torch's scaled_dot_product_attention and in Keras, "
            "'blocked' in torch's MultiheadAttention.",
            option="--mask-true",
        )
    from attn_cli.inputs.mask_file import mask_from_values, read_mask  # only those who give a file need it

    return mask_from_values(visible(wanted), read_mask(wanted), settings.mask_true, n_q, n_k)
