"""A page obeys nobody: whatever tokens, names and files hold, nothing of it runs, loads or shows as markup."""

import json
from urllib.parse import quote

import pytest

from attn_cli.errors import shell_quote, visible
from tests.cli.test_hostile import CONTROLS, MARKUP, SEQUENCES, UNSEEN
from tests.io.test_escape import PASTES, SHELLS
from tests.shell import attn, pasted
from tests.thorough import like_cases

SCRIPTS = [
    *("<img src=x onerror=window.obeyed=1>", "<svg onload=window.obeyed=1>"),
    *("<svg><script>window.obeyed=1</script></svg>", "</script><script>window.obeyed=1</script>"),
    *("</title><script>window.obeyed=1</script>", "</style><style>*{display:none}</style>"),
    *("<style>@import'//x'</style>", "<!--<script>", "--><script>window.obeyed=1</script>"),
    *("<iframe srcdoc='<script>parent.obeyed=1</script>'>", "<a href=javascript:window.obeyed=1>x</a>"),
    *("javascript:window.obeyed=1", "'-window.obeyed=1-'", '"-window.obeyed=1-"'),
    *("`${window.obeyed=1}`", "${window.obeyed=1}", "{{constructor.constructor('window.obeyed=1')()}}"),
    *("{query}", "{value}", "@title@", "@notes@", "$&", "$1", "\\u003cscript\\u003e", "url(//x)"),
    *("red;background:url(//x)", "<link rel=stylesheet href=//x>"),
    *("<meta http-equiv=refresh content=0;//x>", "<base href=//x>", "<form action=//x><button>"),
    *("<body onload=window.obeyed=1>", "]]>", "<![CDATA[", "<?xml?>", "&lt;b&gt;", "&#60;b&#62;"),
    *("__proto__", "constructor", "toString", "אבג", "مرحبا", "\u202eabc", "\u2066abc"),
    *("👩\u200d👩\u200d👧", "e\u0301\u0301\u0301"),
]
HOSTILE = [token for token in (*SCRIPTS, *MARKUP, *SEQUENCES, *CONTROLS, *UNSEEN) if " " not in token]
HOSTILE += [one for token in SCRIPTS for one in (f"a{token}", f"{token}b", f'"{token}')]


def harmless(opened, *args, **how) -> None:
    opened.make(*args, **how)
    opened.page.evaluate("() => { window.obeyed = window.obeyed || 0 }")
    for button in ("next", "next", "save-svg", "save-json"):
        opened.page.evaluate("id => document.getElementById(id).click()", button)
    foreign = "img, iframe, link, base, meta[http-equiv=refresh], a[href], object"
    assert opened.page.locator(foreign).count() == 0
    assert opened.page.evaluate("window.obeyed") == 0
    assert opened.page.evaluate("document.querySelectorAll('script:not([type])').length") == 0


@pytest.mark.parametrize("start", range(0, len(HOSTILE), 20))
@like_cases
def test_hostile_tokens_are_shown_and_not_obeyed(opened, start):
    tokens = HOSTILE[start : start + 20]
    matrix = [[float(n), 1.0] for n in range(len(tokens))]
    given = {"Q": matrix, "K": matrix, "V": matrix, "tokens": tokens}
    harmless(opened, "compute", "-", "-f", "page", input=json.dumps(given))
    assert opened.page.locator("#matrix tbody th").count() == len(tokens)
    assert opened.record()["query_tokens"] == tokens  # in data they are as they were


def test_a_hostile_text_head_name_and_link_are_not_obeyed_and_the_policy_lets_nothing_else_run(opened):
    text = " ".join(token for token in SCRIPTS if not token.startswith("-"))
    harmless(opened, "page", text, "--tokenizer", "whitespace")
    opened.enter("#sentence", text)
    for link in (
        "#head=<img src=x onerror=window.obeyed=1>&q=<script>&show=__proto__",
        "#text=<svg onload=window.obeyed=1>",
        "#step=constructor&mask=toString&score=constructor&links=[[]]&t=NaN",
    ):
        opened.follow(link)
    assert opened.page.evaluate("window.obeyed") == 0
    record = {"weights": [[[0.5, 0.5], [1.0, 0.0]]] * 2, "tokens": ["a", "b"]}
    harmless(opened, "show", "-", "-f", "page", input=json.dumps(record))
    for tag, key, to in (
        ("script", "textContent", "window.obeyed = 1"),
        ("img", "src", "https://x.org/x.png"),
    ):
        added = f"Object.assign(document.createElement('{tag}'), {{{key}: '{to}'}})"
        opened.page.evaluate(f"document.body.append({added})")
    opened.page.wait_for_timeout(200)
    complaints = [one for one in opened.complaints if not one.startswith("request: ")]  # which was blocked
    opened.complaints.clear()
    assert len(complaints) == 2 and all("Content Security Policy" in one for one in complaints)
    assert opened.page.evaluate("window.obeyed") == 0


def commands(opened, links: list[str]) -> list[str]:
    script = """(link) => new Promise((told) => {
      addEventListener("hashchange", () => told(document.getElementById("command").textContent), { once: true });
      location.hash = link;
    })"""
    return [opened.page.evaluate(script, link) for link in links]


def test_the_command_of_any_text_holds_no_control_and_bash_reads_the_text_back(opened):
    kinds = [*SHELLS.split("|")[1:], *PASTES.split("|"), *CONTROLS, *UNSEEN, *SEQUENCES, *MARKUP]
    texts = [one for one in kinds if "\udcff" not in one]
    opened.make("page", "fox", "--tokenizer", "whitespace", "--words", "9")
    found = commands(opened, [f"#text={quote(text)}" for text in texts])
    assert all(visible(command) == command for command in found)
    assert [words[-1] for words in pasted(found, locale="C")] == texts
    for command, text in zip(found, texts, strict=True):
        assert visible(text) == text or command.endswith(f" {shell_quote(text)}")
    for text in ("fox\0jumped", "-"):  # no argument can be one: it is computed from saved numbers
        opened.make("page", "-", "--tokenizer", "whitespace", "--words", "9", input=text)
        assert opened.page.text_content("#command") == "attn compute attn-numbers.json"
        found = commands(opened, ["#text=fox", f"#text={quote(text)}"])
        assert found == ["attn self --tokenizer whitespace fox", "attn compute attn-numbers.json"]


def test_the_copied_command_and_that_of_a_page_of_such_texts_and_paths_make_the_same_view(opened, tmp_path):
    text = PASTES.partition("|")[0]
    opened.make("page", "fox", "--words", "99", link=f"#text={quote(text)}")
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.page.click("#copy-command")
    opened.page.wait_for_function("() => document.getElementById('save-says').textContent !== ''")
    command = opened.page.evaluate("navigator.clipboard.readText()")
    assert command == opened.page.text_content("#command") == f"attn self {shell_quote(text)}"
    assert "bash and zsh" in opened.text("#command-note")
    (words,) = pasted([command])
    assert opened.record()["query_tokens"] == json.loads(attn(*words, "-f", "json").out)["query_tokens"]
    vectors = tmp_path / "a\x1b'!b\udcff.txt"
    vectors.write_text("fox 0.2 0.9\njumped 0.7 0.1\n-x\u202e 0.3 0.4\n")
    options = ("--tokenizer", "whitespace", "-e", str(vectors), "--without", "-x\u202e", "-f", "page")
    opened.make("cross", *options, "--", "fox\x15 -x\u202e", "-x\u202e jumped")
    ((kind, *words),) = pasted([opened.page.text_content("#command")])
    saved, expected = opened.record(), json.loads(attn(kind, "-f", "json", *words).out)
    assert all(saved[name] == expected[name] for name in ("query_tokens", "key_tokens", "mask"))
    assert expected["embedding"]["name"] == visible(str(vectors))
