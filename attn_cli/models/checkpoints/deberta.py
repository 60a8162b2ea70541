"""DeBERTa, whose layers compare queries with distances, and keys (He et al. 2021): its plans, and what its keys say."""

from __future__ import annotations

from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.describe import Disentangled, Logits, Model, Plan, Stack
from attn_cli.models.checkpoints.plans import BERT, BERT_STACK, EMBEDDINGS


def _disentangled(c: Config, stack: Stack) -> Stack:
    """Let each layer make keys and queries of distances, as far as DeBERTa's keys say."""
    told = c.values.get("pos_att_type") or []
    kinds = [kind.strip() for kind in told.lower().split("|")] if isinstance(told, str) else told
    if (
        not isinstance(kinds, list)
        or not set(map(str, kinds)) <= set(OF_PLACES)
        or len(kinds) > len(OF_PLACES)
    ):
        raise c.refused("pos_att_type", "c2p, p2c or both")
    is_relative, words = c.flag("relative_attention"), stack.words
    absent = {role for kind, role in OF_PLACES.items() if kind not in kinds or not is_relative}
    names = {role: name for role, name in stack.layers[0].names.items() if role not in absent}
    if c.flag("share_att_key", False):
        names |= {role: names[role[-1]] for role in OF_PLACES.values() if role in names}
    if c.reads("conv_kernel_size") and c.values.get("conv_kernel_size", 0) != 0:
        raise c.refused("conv_kernel_size", "0 or left out: attn knows no convolution in a layer")
    scale = (stack.d_k * (1 + len(kinds))) ** -0.5
    distances = _distances(c) if is_relative else None
    has_places = c.flag("position_biased_input")
    return stack._replace(
        words=words._replace(positions=words.positions if has_places else None), disentangled=distances,
        layers=tuple(layer._replace(names=names, scale=scale) for layer in stack.layers),
    )  # fmt: skip


def _distances(c: Config) -> Disentangled:
    def some(name: str) -> int | None:
        """Return a number of 1 and more; None for those below, which say that there is none."""
        value = c.values.get(name, -1)
        return None if type(value) is int and value < 1 else c.whole(name)

    farthest = some("max_relative_positions") or c.whole("max_position_embeddings")
    buckets = some("position_buckets") if c.reads("position_buckets") else None
    if buckets is not None and (buckets < 2 or farthest - 1 <= buckets // 2):
        raise c.refused("position_buckets", f"2 or more, and less than twice {farthest - 1}")
    norms = c.word("norm_rel_ebd").lower() if c.has("norm_rel_ebd") else ""
    norm = "encoder.LayerNorm" if "layer_norm" in [kind.strip() for kind in norms.split("|")] else None
    return Disentangled(buckets or farthest, farthest, buckets is not None, norm)


OF_PLACES = {"c2p": "place_k", "p2c": "place_q"}
DEBERTA_2 = BERT._replace(
    names={
        **BERT.names, "q": "attention.self.query_proj", "k": "attention.self.key_proj",
        "v": "attention.self.value_proj", "place_k": "attention.self.pos_key_proj",
        "place_q": "attention.self.pos_query_proj",
    },
    prefixes=("deberta.",),
    change=_disentangled,
)  # fmt: skip
DEBERTA = DEBERTA_2._replace(
    stack=BERT_STACK._replace(by_head=True),
    names={
        **{role: name for role, name in BERT.names.items() if role not in "qkv"}, "qkv": "attention.self.in_proj",
        "q_bias": "attention.self.q_bias", "v_bias": "attention.self.v_bias",
        "place_k": "attention.self.pos_proj", "place_q": "attention.self.pos_q_proj",
    },
    biases={"no_bias": "qkv place_k"},
)  # fmt: skip


def deberta(c: Config, plan: Plan = DEBERTA) -> Model:
    """Return DeBERTa, whose words are guessed by one of two heads."""
    own = "lm_predictions.lm_head"
    head = Logits((EMBEDDINGS,), (f"{own}.bias",), f"{own}.dense", f"{own}.LayerNorm")
    return (plan if c.flag("legacy") else plan._replace(logits=head)).model(c)
