"""Parsed sentences, written as `word/TAG/governor/relation`: as CoNLL-U, and as the program's record."""

from attn_cli.learn.treebank import Sentence


def rows(text: str) -> list[list[str]]:
    """Return the ten CoNLL-U columns of each word; governors are numbered from 1, and 0 is the root's."""
    made = []
    for number, token in enumerate(text.split(), 1):
        word, tag, governor, relation = token.split("/")
        made.append([str(number), word, word.lower(), tag, "_", "_", governor, relation, "_", "_"])
    return made


def conllu(*texts: str) -> str:
    return "".join("".join("\t".join(row) + "\n" for row in rows(text)) + "\n" for text in texts)


def parsed(text: str) -> Sentence:
    """Return one sentence as the reader of treebanks should."""
    _, words, _, tags, _, _, governors, relations, _, _ = zip(*rows(text), strict=True)
    return Sentence(words, tuple(int(governor) - 1 for governor in governors), relations, tags)
