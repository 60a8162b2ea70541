"""What each named head is to find, read off sentences that were parsed by hand."""

import pytest

from attn_cli.learn.relations import MAIN, RELATIONS, importance
from attn_cli.learn.treebank import Antecedents, Sentence
from tests.parsed import parsed

PARSED = """
The/DET/4/det quick/ADJ/4/amod brown/ADJ/4/amod fox/NOUN/5/nsubj jumped/VERB/0/root over/ADP/9/case the/DET/9/det
lazy/ADJ/9/amod dog/NOUN/5/obl ./PUNCT/5/punct
| She/PRON/2/nsubj gave/VERB/0/root Tom/PROPN/2/iobj his/PRON/5/nmod:poss book/NOUN/2/obj
| All/DET/3/det:predet the/DET/3/det letters/NOUN/5/nsubj:pass were/AUX/5/aux:pass sent/VERB/0/root by/ADP/8/case
Ann/PROPN/8/nmod:poss mother/NOUN/5/obl:agent ./PUNCT/5/punct
| The/DET/2/det soup/NOUN/7/nsubj that/PRON/6/obj my/PRON/5/nmod:poss aunt/NOUN/6/nsubj cooked/VERB/2/acl:relcl
tasted/VERB/0/root good/ADJ/7/xcomp ,/PUNCT/11/punct hot/ADJ/11/amod stuff/NOUN/7/parataxis
| We/PRON/2/nsubj bought/VERB/0/root bread/NOUN/2/obj ,/PUNCT/5/punct cheese/NOUN/3/conj and/CCONJ/7/cc
apples/NOUN/3/conj and/CCONJ/9/cc left/VERB/2/conj on/ADP/11/case foot/NOUN/9/obl from/ADP/14/case the/DET/14/det
market/NOUN/9/obl ./PUNCT/2/punct
| A/DET/2/det friend/NOUN/0/root of/ADP/5/case my/PRON/5/nmod:poss brother/NOUN/2/nmod
| It/PRON/2/nsubj crept/VERB/0/root out/ADP/6/case from/ADP/6/case its/PRON/6/nmod:poss den/NOUN/2/obl
"""
FOX, GIFT, PASSIVE, SOUP, SHOP, FRIEND, FROM_UNDER = ALL = PARSED.split("|")


def links(head, text):
    """Each link as `query>key`, in words (numbered from the second of the same word on)."""
    sentence = parsed(text)
    counts = [sentence.words[: n + 1].count(word) for n, word in enumerate(sentence.words)]
    names = [word if n == 1 else f"{word}{n}" for word, n in zip(sentence.words, counts, strict=True)]
    found = RELATIONS[head].links(sentence)
    return {f"{names[query]}>{names[key]}" for query, keys in found.items() for key in keys}


WANTED = [  # of each sentence, what heads are to find
    (FOX, "subject jumped>fox ; object ; oblique jumped>over ; coordination ; determiner fox>The dog>the"),
    (FOX, "modifier fox>quick fox>brown dog>lazy"),
    (FOX, "head The>fox quick>fox brown>fox fox>jumped over>dog the>dog lazy>dog dog>jumped"),
    (GIFT, "object gave>book ; possessor book>his ; head She>gave Tom>gave his>book book>gave"),
    (PASSIVE, "subject sent>letters ; oblique sent>by ; determiner letters>the ; possessor mother>Ann"),
    (SOUP, "subject tasted>soup cooked>aunt ; object cooked>that ; modifier stuff>hot"),
    (SHOP, "subject bought>We ; object bought>bread ; oblique left>on left>from"),
    (SHOP, "coordination cheese>bread apples>bread left>bought"),
    (FRIEND, "subject ; oblique ; possessor brother>my ; head A>friend of>brother my>brother brother>friend"),
    (FROM_UNDER, "oblique crept>out crept>from ; head It>crept out>den from>den its>den den>crept"),
]


@pytest.mark.parametrize(("text", "wanted"), WANTED)
def test_a_head_is_to_find(text, wanted):
    for head, *found in map(str.split, wanted.split(" ; ")):
        assert links(head, text) == set(found), head


@pytest.mark.parametrize("text", ALL)
def test_relations_are_governors_dependents_and_prepositions_and_punctuation_takes_no_part_in_any(text):
    up = links("head", text)
    down = {f"{key}>{query}" for query, key in (link.split(">") for link in up)}
    assert links("relations", text) == up | down | links("oblique", text)
    sentence = parsed(text)
    marks = {i for i, tag in enumerate(sentence.tags) if tag == "PUNCT"}
    for name, relation in RELATIONS.items():
        found = relation.links(sentence)
        assert relation.links_to_learn(sentence) == found, "it is taught as it is"
        for query, keys in found.items():
            assert name in ("previous", "next") or not marks & {query, *keys}


def test_previous_and_next_go_one_step_from_every_word_that_has_a_neighbour():
    for text in ALL:
        n = len(parsed(text).words)
        assert RELATIONS["previous"].links(parsed(text)) == {i: {i - 1: 1.0} for i in range(1, n)}
        assert RELATIONS["next"].links(parsed(text)) == {i: {i + 1: 1.0} for i in range(n - 1)}
    alone = parsed("Go/VERB/0/root")
    assert all(relation.links(alone) == {} for relation in RELATIONS.values())


def test_a_name_of_several_words_is_taught_as_one_and_every_head_counts_something():
    text = "John/PROPN/3/nsubj Smith/PROPN/1/flat sang/VERB/0/root old/ADJ/5/amod songs/NOUN/3/obj"
    right, taught = (find(parsed(text)) for find in (RELATIONS[MAIN].links, RELATIONS[MAIN].links_to_learn))
    assert set(right[2]) == {0, 4} and set(taught[2]) == {0, 1, 4}
    assert 0 < taught[2][0] < taught[2][1], "Smith stands nearer to sang than John does"
    assert taught[2][0] + taught[2][1] == pytest.approx(right[2][0])
    assert sum(taught[2].values()) == pytest.approx(sum(right[2].values()))
    assert {query: taught[query] for query in (0, 1, 3, 4)} == {query: right[query] for query in (0, 1, 3, 4)}
    # Who did what comes first; of a verb's prepositions, and of all other dependents, less is wanted.
    shares = {0: 0.5, 1: 0.5, 2: 0.5, 4: 1.0}, {3: 2.0, 5: 0.7, 8: 1.0}, {0: 2.0, 2: 1.0, 4: 1.5}
    found = [RELATIONS[MAIN].links(parsed(s)) for s in (FOX, GIFT, PASSIVE, SOUP.replace("amod", "ccomp"))]
    assert (found[0][3], found[0][4], found[1][1]) == shares
    shares = {2: 2.0, 3: 0.5, 5: 0.7, 7: 1.0}, {1: 2.0, 7: 2.0, 10: 0.5}, {6: 1.0, 9: 1.5}
    assert (found[2][4], found[3][6], found[3][10]) == shares
    counts = [2 / 3.2, 1 / 3.2, 0.2 / 3.2, 8 / 3.2]  # passages count beside all others, which sum to one
    assert importance(["head", "subject", "next", "antecedent"]) == pytest.approx(counts)
    assert sum(importance([name for name in RELATIONS if name != "antecedent"])) == pytest.approx(1)


def test_a_passage_says_what_marked_pronouns_stand_for_and_a_mark_is_neither_row_nor_target():
    words = ("Anna", "told", "him", "that", "she", "sleeps")
    passage = Sentence(words, (-1,) * 6, ("",) * 6, ("X",) * 6, (Antecedents(4, (0,)),))
    relation = RELATIONS["antecedent"]
    assert relation.links(passage) == {4: {0: 1.0}}
    assert relation.known_rows(passage) == [True, True, False, True, True, True]
    assert not any(RELATIONS["subject"].known_rows(passage)), "who governs whom is not known"
    sentence = parsed("Anna/PROPN/2/nsubj sees/VERB/0/root him/PRON/2/obj")
    assert relation.links(sentence) == {} and relation.known_rows(sentence) == [True, True, False]
    assert all(RELATIONS["subject"].known_rows(sentence))
    ratio = "Mix/VERB/0/root salt/NOUN/1/obj ://PUNCT/4/case one/NUM/1/obl"
    assert not any(":" in link for link in links("relations", ratio.replace("://", ":/")))
    shout = "!/PUNCT/0/root at/ADP/3/case him/PRON/1/obl"
    assert links("relations", shout) == {"at>him", "him>at"}
    governing = "yes/INTJ/2/dep -/PUNCT/0/root no/INTJ/2/dep never/ADV/3/advmod"
    assert links("relations", governing) == {"never>no", "no>never"}
