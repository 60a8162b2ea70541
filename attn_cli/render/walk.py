"""The steps of attention, in order: name, formula, LaTeX, and one plain sentence to fill with real values."""

from __future__ import annotations

from attn_cli.errors import UsageError, did_you_mean, visible
from attn_cli.io.types import NamedTuple


class Walk(NamedTuple):
    """Which parts of the walk are shown: all steps or some, the row by hand before them, the ending after them."""

    only: tuple[str, ...] = ()
    by_hand: bool = True
    ending: bool = True

    @property
    def has_steps(self) -> bool:
        """Whether steps were asked for, so that the story would not do."""
        return bool(self.only)


class Step(NamedTuple):
    """One step. `name` is the Trace's or the Head's field; `sentence` is filled by the renderer."""

    name: str
    title: str
    formula: str
    latex: str
    sentence: str
    alone: str = ""  # the sentence where there is only one key

    def without_sum(self) -> Step:
        """Return the step where a sink takes a part of each row: nothing says that rows sum to one."""
        return self._replace(title=self.title.removesuffix(" that sum to one"), alone="")


# Of each step its name, and those on the command line, of which help offers the first (a field's own name works too);
# then its title, formula, LaTeX, sentence, and the sentence where there is only one key.
_TEXT = r"""
tokens: tokens ids
Tokens and ids
text -> tokens -> ids
t_0, t_1, \ldots, t_{n-1}
The text has {tokens}, {distinct} distinct; {numbering}.

x_query: x vectors embedding
A vector for each token
X = one row of {d} numbers a token
X \in \mathbb{R}^{n \times d}
{query} starts as {d} numbers, the first being {first}; {source}.

encodings_query: positions order
Word order: where each token stands
X + P, where P[i, 2c] = sin(i / 10000^(2c/{d})) and P[i, 2c+1] = cos of the same
X + P,\quad P_{i,2c} = \sin\left(i / 10000^{2c/d}\right),\ P_{i,2c+1} = \cos\left(i / 10000^{2c/d}\right)
{query} stands at place {place}, so its first number becomes {before} + {added} = {first}.

W_q: w
The weights that make queries, keys and values
{weights}
W_q, W_k \in \mathbb{R}^{d \times d_k},\ W_v \in \mathbb{R}^{d \times d_v}
{projection}

q: queries
Queries: what each word looks for
Q = {apply_q}
Q = X W_q
The query of {query} begins with {first}.

k: keys
Keys: what each word offers to be found by
K = {apply_k}
K = X W_k
The key of {key} begins with {first}.

v: values
Values: what each word passes on
V = {apply_v}
V = X W_v
The value of {key} begins with {first}.

scores: scores
Scores: how well each query matches each key
scores = {compare}
Q K^\top
{query} scores highest with {key}: {value}.

scaled_scores: scaled scaling
Scaling
scaled = {scaling}
\frac{Q K^\top}{\sqrt{d_k}}
The score of {query} and {key}, {before}, becomes {value}; {why}.

position_scores: position
Distance
distance = {position}
\frac{q_i^\top r_{j-i} + b_{j-i}}{\sqrt{d_k}}
For their distance the model adds {value} to the score of {query} and {key}: together {sum}.

capped_scores: cap softcap
Soft cap: no score is too large
capped = {capping}
c \tanh(s / c)
The score of {query} and {key}, {before}, becomes {value}: none gets beyond {cap}.

masked_scores: mask masked
The mask
masked = {unmasked} where allowed, nothing elsewhere
M_{ij} \in \{0, -\infty\}
{masking}

weights: softmax weights
Softmax: scores become weights that sum to one
weights = exp({before}) / {total}
A = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right)
{query} gives {value} of its attention to {key}; no word gets more.{sunk}
{query} gives all of its attention to {key}: there is no other word.

output: output
Output: the values, mixed by the weights
output = weights V
A V
The new vector of {query} is {value} x the value of {key}, plus shares of the others.
The new vector of {query} is the value of {key}.
"""
_READ = [block.partition(": ") for block in _TEXT.strip().split("\n\n")]
STEPS = tuple(Step(name, *lines.split("\n")[1:]) for name, _, lines in _READ)
NAMES = {name: tuple(lines.split("\n")[0].split()) for name, _, lines in _READ}


def chosen_steps(only: str | None, start: str | None) -> Walk:
    """Return the walk with the steps that `only` lists (`scores,weights`), or from the step `start` on.

    Raises UsageError where no step has such a name.
    """
    if only is not None and start is not None:
        raise UsageError("--only and --from exclude each other.", "Give one of them.", "--only")
    if only is not None:
        wanted = {_step(name.strip(), "--only") for name in only.split(",")}
        return Walk(tuple(step.name for step in STEPS if step.name in wanted), by_hand=False, ending=False)
    if start is not None:
        names = [step.name for step in STEPS]
        return Walk(tuple(names[names.index(_step(start.strip(), "--from")) :]), by_hand=False)
    return Walk()


def _step(name: str, option: str) -> str:
    for step, names in NAMES.items():
        if name.lower() in (*names, step.lower()):
            return step
    offered = ", ".join(names[0] for names in NAMES.values())
    near = did_you_mean(name, [each for names in NAMES.values() for each in names])
    raise UsageError(f"There is no step {visible(name[:40])!r}.", f"{near}Steps are {offered}.", option)
