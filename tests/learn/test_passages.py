"""Passages with marked pronouns: read, merged, freed of punctuation; and every malformed record is refused."""

import json
import lzma

import pytest

from attn_cli.errors import InputError
from attn_cli.learn.treebank import Antecedents, read_passages

TOKENS = ["Anna", ",", "who", "saw", "Bo", ",", "knew", "she", "liked", "him", "."]
SHE = {"tokens": TOKENS, "pronoun": 7, "antecedents": [[0, 1]], "candidates": [[0, 1], [4, 5]], "source": "a"}
HIM = {"tokens": TOKENS, "pronoun": 9, "antecedents": [[4, 5]]}


def passages(tmp_path, *records, name="some.jsonl"):
    data = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records).encode()
    (tmp_path / name).write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    return read_passages(str(tmp_path / name))


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.xz"])
def test_records_of_the_same_tokens_are_one_passage(tmp_path, name):
    (found,) = passages(tmp_path, SHE, "", HIM, name=name)
    assert found.words == tuple(TOKENS) and not found.is_parsed
    assert found.antecedents == (Antecedents(7, (0,), ((0, 1), (4, 5))), Antecedents(9, (4,)))
    assert found.tags == ("X", "PUNCT", "X", "X", "PROPN", "PUNCT", "X", "X", "X", "X", "PUNCT")


def test_a_pronoun_does_not_stand_for_itself(tmp_path):
    (found,) = passages(tmp_path, SHE | {"antecedents": [[0, 1], [6, 9]]})
    assert found.antecedents[0].words == (0, 6, 8)


def test_without_punctuation_pronouns_have_new_places_and_without_a_passage_a_file_is_refused(tmp_path):
    bare = passages(tmp_path, SHE, HIM)[0].without_punctuation()
    assert bare.words == ("Anna", "who", "saw", "Bo", "knew", "she", "liked", "him")
    assert bare.antecedents == (Antecedents(5, (0,), ((0, 1), (3, 4))), Antecedents(7, (3,)))
    with pytest.raises(InputError, match="no passage"):
        passages(tmp_path, "")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        *(("{", "not JSON"), ("[1]", "JSON object"), (SHE | {"tokens": "Anna"}, "tokens")),
        *((SHE | {"tokens": []}, "0 tokens"), (SHE | {"tokens": [*TOKENS, ""]}, "tokens")),
        *((SHE | {"pronoun": 11}, "0 to 10"), (SHE | {"pronoun": True}, "pronoun")),
        *((SHE | {"antecedents": []}, "must hold a span"), (SHE | {"antecedents": [[1, 1]]}, "antecedents")),
        *((SHE | {"antecedents": [[0, 12]]}, "antecedents"), (SHE | {"antecedents": [[0]]}, "antecedents")),
        *((SHE | {"antecedents": 3}, "antecedents"), (SHE | {"candidates": [["a", "b"]]}, "candidates")),
    ],
)
def test_a_malformed_record_is_refused_with_its_line(tmp_path, record, said):
    with pytest.raises(InputError) as refused:
        passages(tmp_path, HIM, record)
    assert "line 2" in refused.value.message and said in refused.value.message
