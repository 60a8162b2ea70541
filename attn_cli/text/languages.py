"""Whether a text seems to be in another language than English, by its common words and those that are unknown.

The lists hold words that a sentence can hardly do without. It is a guess, made to be silent rather than wrong: short
texts, names, code, and English with a foreign phrase in it are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Common(NamedTuple):
    """The common words of a language: its own, and those that English text has too, in names or as other words."""

    own: frozenset[str]
    shared: frozenset[str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A line for each language: its own common words, and behind the bar those that English text has too.
_LISTS = """
French: une est dans que qui pas avec sur nous vous elle ils elles je mais où cette ces mes ses être avoir suis sont
  était ont aux très comme leur quand aussi ce cela chez parce puis | le la les de des du un et il en au ne se son sa
  plus par pour tu mon ma à
German: und ich nicht ist eine einen einem einer sie wir ihr mit auf für sich auch aber oder bei nach aus noch wenn
  dass sind haben habe wird werden kein keine sein mein über unter hatte kann zum zur mich | der die das den dem des
  ein er es im zu von hat wie nur um vor wo
Spanish: una que por pero sus está están esta muy más también hay tiene yo nosotros ellos porque cuando donde nada soy
  eres somos fue ser qué eso cada hasta desde hacia | el la los las de del al un y en con se su lo le es para como mi
  te si este todo sin él sobre ella
Italian: una che è sono della nel nella dei degli delle gli più perché anche questo questa suo lei lui noi loro quando
  molto dove essere abbiamo hanno sulla alla dal dalla cosa | il lo la le di da con su per tra un e ma non si mi ti ci
  se come del al ha ho mio
Portuguese: não são uma que por dos das em ele ela eles você muito também está isso foi seu sua eu pelo pela quando
  mas até nós tem ao à às numa | o os de da na um e com para se te mais como este esta ser meu num
Dutch: het een ik niet zijn wij jij hij zij voor aan ook nog heb hebben wordt geen deze naar bij uit maar mijn wat dit
  deze werd kan heeft tegen | de en van te op met dat die er om als door je ze
"""
_NAMED = (re.split("[:|]", one) for one in re.split("\n(?! )", _LISTS.strip()))
LANGUAGES = {name: Common(_words(own), _words(shared)) for name, own, shared in _NAMED}
ENGLISH = _words(
    "the of and to that it with for he she they his her their this these those are were be been have has you your our "
    "its which who what when where there not but from by at will would can could do does did if then than them him us "
    "about into out up down all some any my"
)
# Marks that prose has; others are signs of code, of paths and of tables.
MARKS = frozenset(".,;:!?¿¡…'\"’‘“”„«»‹›()–—-")
LEAST, MOST = 4, 1_000  # words; fewer may be a name, more need not be looked at


def foreign_words(
    tokens: Sequence[str], unknown: Collection[str], dropped: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the common words of another language that a text has, where it hardly can be English; else nothing.

    `unknown` are the words without a vector, `dropped` the marks between the tokens.

    >>> foreign_words("Le chat boit du lait".split(), {"boit", "lait"})
    ('Le', 'du')
    >>> foreign_words("Oscar de la Renta was there".split(), {"Renta"})
    ()
    """
    tokens = tokens[:MOST]
    # Letters, and what stands between two of them; what stands between the words is what prose has there.
    words = [one for one in tokens if one.replace("'", "").replace("’", "").replace("-", "").isalpha()]
    others = "".join([*dropped, *(set(tokens) - set(words))])
    if len(words) < LEAST or not all(mark in MARKS or mark.isdigit() for mark in others):
        return ()
    sure = [one for one in LANGUAGES.values() if _is_sure(words, unknown, one)]
    found = [word for word in words if any(word.lower() in one.own | one.shared for one in sure)]
    return tuple(dict.fromkeys(found))


def _is_sure(words: Sequence[str], unknown: Collection[str], common: Common) -> bool:
    """Tell whether this many words of a language, beside unknown ones, can hardly be English."""
    lower = [word.lower() for word in words]
    own, shared, english = (sum(word in some for word in lower) for some in (*common, ENGLISH))
    known = own + shared
    listed = common.own | common.shared | ENGLISH
    strange = [word for word in words if word in unknown and word.lower() not in listed]
    plain = sum(word == word.lower() for word in strange)  # no names
    explained = (known + len(strange)) / len(words)
    if 2 * english >= known:
        return False
    if own >= 2:
        return explained >= 0.6
    if plain == 0 or explained < 0.75:
        return False
    if own == 1:
        return True
    return (len(strange) >= 2 and known + plain >= 4) or (explained == 1 and len(strange) >= 3)
