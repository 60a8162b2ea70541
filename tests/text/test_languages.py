"""Texts in other languages are told from English, names and code; where in doubt, nothing is said."""

import ast
import json
import re
from pathlib import Path

from attn_cli.text.languages import ENGLISH, LANGUAGES, foreign_words
from attn_cli.text.tokenize import tokenize
from attn_cli.vectors import bundled
from attn_cli.vectors.spelling import forms
from tests.shell import here
from tests.thorough import takes_long

ROOT = Path(__file__).parents[2]
KNOWN = set(bundled().words())
FRENCH = "Le chat boit du lait"
SENTENCES = f"""{FRENCH} / Je ne sais pas pourquoi elle est venue / La petite fille mange une pomme /
Elle lit un livre / Die Katze trinkt Milch / Ich habe keine Zeit / Der Hund schläft unter dem Tisch /
El gato bebe leche / Alle Menschen sind frei und gleich an Würde und Rechten geboren / Los niños juegan en el jardín /
Dónde está la biblioteca más cercana / Il gatto beve il latte / La ragazza mangia una mela / O gato bebe leite /
I bambini giocano nel giardino / Nós vamos ao cinema amanhã / Não tenho tempo hoje / Ik heb geen tijd /
De hond slaapt onder de tafel / Het meisje eet een appel / Hij leest een boek /
DER HUND SCHLÄFT UNTER DEM TISCH und bellt"""
# Names, phrases that English took over, made-up words, code, and English that holds other languages.
NAMES = """Oscar de la Renta; Leonardo da Vinci; Ludwig van Beethoven; La La Land; Los Angeles; Die Hard; Der Spiegel;
Antoine de Saint-Exupéry; Pedro Calderón de la Barca; Jean de La Fontaine; C'est la vie; Juan de Oñate y Salazar;
Ella Stowbody said acidly.; El Niño and La Niña; the blorf zorked la quux; blorf; xyzzy frobnicate; x y z w;
'Twas brillig, and the slithy toves did gyre and gimble in the wabe; He said je ne sais quoi and left;
Der Spiegel and Die Zeit are German newspapers; la de da de da; 1 2 3 4 5; 猫 は 牛乳 を 飲む;
The Spanish for cat is gato, and el gato bebe leche means that it drinks milk; ls -la /usr/bin/du;
for i in range(n): print(i); He said nous sommes arrivés avec eux; SELECT la FROM un WHERE de = 1"""


def found(text):
    tokens = tokenize(text, "words", False)
    unknown = {token for token in tokens.tokens if KNOWN.isdisjoint(forms(token))}
    return foreign_words(tokens.tokens, unknown, tokens.dropped)


def test_a_sentence_of_another_language_is_told_by_words_that_it_has_and_english_names_and_code_are_not():
    for text in SENTENCES.split("/"):
        words = found(text)
        assert words and set(words) <= set(text.split()), text
    for text in ("il.append(la); du += un", *NAMES.split(";")):
        assert found(text) == (), text


def test_no_text_of_the_pages_or_the_examples_is_taken_for_another_language():
    pages = [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    lines = [line for line in "\n".join(pages).splitlines() if "attn " in line and FRENCH not in line]
    texts = {text for line in lines for text in re.findall(r'"([^"]+)"', line)}
    for example in (ROOT / "data" / "examples").glob("*.json"):
        record = json.loads(example.read_text(encoding="utf-8"))
        texts.add(" ".join(record.get("tokens", [])) or str(record.get("text", "")))
    assert len(texts) > 40 and [text for text in texts if found(text)] == []


@takes_long
def test_no_text_in_the_program_or_its_tests_is_taken_for_another_language():
    lists = (Path(__file__).name, "languages.py")
    pages = [page for root in ("attn_cli", "tests") for page in (ROOT / root).rglob("*.py")]
    sources = [page.read_text(encoding="utf-8") for page in pages if page.name not in lists]
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    texts = {value for value in values if isinstance(value, str) and " " in value}
    assert len(texts) > 2000 and [text for text in texts if found(text)] == []


def test_a_word_of_the_lists_is_in_one_of_them_and_written_as_it_is_compared():
    for common in LANGUAGES.values():
        assert not common.own & common.shared
        assert not (common.own | common.shared) & ENGLISH
        assert all(word == word.lower() for word in common.own | common.shared)


def test_a_long_text_is_read_at_its_beginning_and_has_signs_marks_and_numbers_as_prose_has_them():
    words, cat = FRENCH.split(), ["cat"]
    assert foreign_words(cat * 1000 + words * 1000, {"boit", "lait"}) == ()
    assert foreign_words(cat * 50 + words * 190 + cat * 1000, {"boit", "lait"}) == ("Le", "du")
    assert foreign_words(words * 900, {"boit", "lait"}) == ("Le", "du")
    words = ["dans", "avec", "zq-a", "l'zq", "d’zq", "Dans"]
    assert foreign_words([*words, "3", "…"], {"zq-a"}, ("—",)) == ("dans", "avec", "Dans")
    for sign in ("=", "x1"):
        assert foreign_words([*words, sign], {"zq-a"}) == foreign_words(words, {"zq-a"}, (sign,)) == ()


# How many own, shared and English words, unknown ones in small letters and with a capital, and others a text has.
TOLD = "200200 211200 200102 110110 100201 020200 020120 010120 001300"
UNTOLD = "200100 201300 200103 200203 110020 120202 020110 030100 020121 200003"


def test_how_many_words_of_a_language_and_unknown_ones_are_enough():
    known = ("dans avec vous", "les du au", "the of")
    unknown, names, others = "zqa zqb zqc", "Zqd Zqe Zqf", "cat hen dog"
    for is_told, texts in ((True, TOLD), (False, UNTOLD)):
        for text in texts.split():
            kinds = zip((*known, unknown, names, others), map(int, text), strict=True)
            tokens = [word for words, count in kinds for word in words.split()[:count]]
            found = foreign_words(tokens, {*f"{unknown} {names} {known[0]}".split()})
            own, shared = (words.split()[: int(n)] for words, n in zip(known[:2], text[:2], strict=True))
            assert found == (tuple(own + shared) if is_told else ()), text


def test_one_note_says_so_whatever_becomes_of_unknown_words_but_not_of_vectors_of_one_s_own(at):
    Path("my.txt").write_text("le 1 0\nchat 0 1\n")
    Path("lines.txt").write_text(f"the blorf sat\n{FRENCH}\n", encoding="utf-8")
    for *command, count in (
        *(("self", FRENCH, "--oov", oov, 1) for oov in ("random", "skip", "nearest")),
        *((kind, FRENCH, 1) for kind in ("masked", "explain")),
        *(("self", FRENCH, "-e", vectors, 0) for vectors in ("my.txt", "random")),
        ("batch", "lines.txt", "--fields", "notes", 1),
    ):
        ran = here(*command)
        assert (ran.code, " ".join(ran.out.split()).count("seems not to be English")) == (0, count)
