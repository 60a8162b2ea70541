"""A page obeys nobody: whatever tokens, names and files hold, nothing of it runs, loads or shows as markup."""

import json

import pytest

from tests.cli.test_hostile import CONTROLS, MARKUP, SEQUENCES, UNSEEN
from tests.shell import attn

SCRIPTS = [
    "<img src=x onerror=window.obeyed=1>",
    "<svg onload=window.obeyed=1>",
    "<svg><script>window.obeyed=1</script></svg>",
    "</script><script>window.obeyed=1</script>",
    "</title><script>window.obeyed=1</script>",
    "</style><style>*{display:none}</style>",
    "<style>@import'//x'</style>",
    "<!--<script>",
    "--><script>window.obeyed=1</script>",
    "<iframe srcdoc='<script>parent.obeyed=1</script>'>",
    "<a href=javascript:window.obeyed=1>x</a>",
    "javascript:window.obeyed=1",
    "'-window.obeyed=1-'",
    '"-window.obeyed=1-"',
    "`${window.obeyed=1}`",
    "${window.obeyed=1}",
    "{{constructor.constructor('window.obeyed=1')()}}",
    "{query}",
    "{value}",
    "@title@",
    "@notes@",
    "$&",
    "$1",
    "\\u003cscript\\u003e",
    "url(//x)",
    "red;background:url(//x)",
    "<link rel=stylesheet href=//x>",
    "<meta http-equiv=refresh content=0;//x>",
    "<base href=//x>",
    "<form action=//x><button>",
    "<body onload=window.obeyed=1>",
    "]]>",
    "<![CDATA[",
    "<?xml?>",
    "&lt;b&gt;",
    "&#60;b&#62;",
    "__proto__",
    "constructor",
    "toString",
    "אבג",
    "مرحبا",
    "\u202eabc",
    "\u2066abc",
    "👩‍👩‍👧",
    "e\u0301\u0301\u0301",
]
HOSTILE = [token for token in (*SCRIPTS, *MARKUP, *SEQUENCES, *CONTROLS, *UNSEEN) if " " not in token]
HOSTILE += [one for token in SCRIPTS for one in (f"a{token}", f"{token}b", f'"{token}')]


def harmless(opened, path) -> None:
    opened.go(path)
    opened.page.evaluate("() => { window.obeyed = window.obeyed || 0 }")
    for button in ("next", "next", "save-svg", "save-json"):
        opened.page.evaluate("id => document.getElementById(id).click()", button)
    foreign = "img, iframe, link, base, meta[http-equiv=refresh], a[href], object"
    assert opened.page.locator(foreign).count() == 0
    assert opened.page.evaluate("window.obeyed") == 0
    assert opened.page.evaluate("document.querySelectorAll('script:not([type])').length") == 0


def test_there_are_200_hostile_tokens():
    assert len(set(HOSTILE)) >= 200


@pytest.mark.parametrize("start", range(0, len(HOSTILE), 20))
def test_hostile_tokens_are_shown_and_not_obeyed(opened, tmp_path, start):
    tokens = HOSTILE[start : start + 20]
    matrix = [[float(n), 1.0] for n in range(len(tokens))]
    given = {"Q": matrix, "K": matrix, "V": matrix, "tokens": tokens}
    path = tmp_path / "page.html"
    ran = attn("compute", "-", "-f", "page", "-o", str(path), input=json.dumps(given))
    assert ran.code == 0, ran.err
    harmless(opened, path)
    assert opened.page.locator("#matrix tbody th").count() == len(tokens)
    saved = json.loads(opened.saved("save-json"))
    assert saved["query_tokens"] == tokens  # in data they are as they were


def test_a_hostile_text_head_name_and_link_are_not_obeyed(opened, tmp_path):
    text = " ".join(token for token in SCRIPTS if not token.startswith("-"))
    path = tmp_path / "page.html"
    assert attn("page", text, "--tokenizer", "whitespace", "-o", str(path)).code == 0
    harmless(opened, path)
    opened.page.fill("#sentence", text)
    opened.page.press("#sentence", "Enter")
    for link in (
        "#head=<img src=x onerror=window.obeyed=1>&q=<script>&show=__proto__",
        "#text=<svg onload=window.obeyed=1>",
        "#step=constructor&mask=toString&score=constructor&links=[[]]&t=NaN",
    ):
        opened.follow(link)
    assert opened.page.evaluate("window.obeyed") == 0
    record = {"weights": [[[0.5, 0.5], [1.0, 0.0]]] * 2, "tokens": ["a", "b"]}
    ran = attn("show", "-", "-f", "page", "-o", str(path), input=json.dumps(record))
    assert ran.code == 0, ran.err
    harmless(opened, path)


def test_the_policy_lets_nothing_else_run(opened, tmp_path):
    path = tmp_path / "page.html"
    assert attn("page", "she likes coffee", "--words", "0", "-o", str(path)).code == 0
    opened.go(path)
    opened.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.obeyed = 1";
          document.body.append(script);
          const picture = document.createElement("img");
          picture.src = "https://example.com/x.png";
          document.body.append(picture);
        }"""
    )
    opened.page.wait_for_timeout(200)
    complaints = [one for one in opened.complaints if not one.startswith("request: ")]  # which was blocked
    opened.complaints.clear()
    assert len(complaints) == 2 and all("Content Security Policy" in one for one in complaints)
    assert opened.page.evaluate("window.obeyed") is None
