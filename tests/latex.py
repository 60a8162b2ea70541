"""Compile what `-f latex` writes, alone and inside other documents: `python -m tests.latex [FOLDER]` (needs pdflatex).

It fails on any error, and on anything that stands out over the edge by more than a few points. The PDF files stay in
the folder.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cli.tables import typed
from tests.shell import attn

# It needs texlive-latex-recommended, texlive-pictures and lmodern.
MOST_OVER = 2.0  # points

FOX = "The quick brown fox jumps over the lazy dog"
SIXTY = " ".join(f"word{n}" for n in range(60))
HOSTILE = (
    r"\input{/etc/passwd} \ { } {{ }} $ $x$ & # ^ _ ~ % %% -- --- ?` !` `` '' ,, << >> \" \"\" | * ** [ ] [red] [2em] "
    r"\\ \end{tabular} \par \csname ^^M ^^5c \begin{document} \end{document} \def\x{ }\iffalse \fi \attnend"
)
LATIN = "".join(chr(code) for code in range(0xA1, 0x180) if code != 0xAD)
BEYOND = (
    "你好 注意力 かな 한국어 λόγος Ωμέγα ὦ мир שלום سلام हिन्दी \U0001f469\u200d\U0001f4bb 🦊 ☕\ufe0f"
    " q\u0303 x\u0302\u0302 ế ǖ ﬁ ½ ² € ™ ∑ ∫ 𝔸"
    " \u202eevil a\u200bb \x1b[31m cafe\u0301 „so“ «et» ‹là› ‘a’ “b” – — … × · √ → ≤ ∞ ᵀ −"
)

TEXTS = {"FOX": FOX, "SIXTY": SIXTY, "HOSTILE": HOSTILE, "LATIN": LATIN, "BEYOND": BEYOND}
TEXTS |= {"LONG": f"a {'x' * 5000} {'W' * 5000} {'你' * 5000}"}
TEXTS |= {"TWICE": f"{SIXTY} {SIXTY}", "MANY": " ".join([FOX] * 220), "TWENTY": " ".join([FOX] * 20)}
# What follows `attn`; a command that can write LaTeX belongs here with its hardest case. The first fit a slide.
ON_SLIDES = 5
COMMANDS = """
self FOX | self FOX --palette viridis | self FOX --color never | cross FOX "My cat sleeps" | example day1
self FOX --palette greys --precision 9 | self FOX --width 40 | self FOX --width 20 | self FOX --head all
self FOX --head all --precision 2 | self FOX --steps | self FOX -q fox | self FOX --top 7 | masked FOX --head all
self FOX -p roles-deep --steps | masked FOX --show mask | explain FOX | explain FOX --score cosine -t 0.5
explain FOX --layout out-in -p random --heads 2 --mask window:1 | explain FOX --positions sinusoidal --round 2
compare FOX --vary score=scaled,dot | self HOSTILE WORDS | explain HOSTILE WORDS | self HOSTILE WORDS --head all
self HOSTILE WORDS --top 4 | compare HOSTILE WORDS --vary mask=none,causal,window:1 | self BEYOND WORDS
masked HOSTILE WORDS --show mask --pad 2 --pad-side left | self BEYOND WORDS --head all | self one
self HOSTILE --tokenizer characters | self LATIN --tokenizer characters --top 2 | self LONG WORDS | explain LONG WORDS
example dictionary | example a2 --steps | self SIXTY -p identity | self SIXTY -p identity --precision 3
self TWICE -p identity | self SIXTY --head all | self MANY | self TWENTY --top 3 | exercise --seed 7
cross FOX "My cat sleeps" --mask causal --show mask | example coffee --mask causal --steps
lookup performance battery=1 "top speed=250" "horse power=400" | exercise --seed 7 --key --mask causal
lookup 'color\\input{x}' color=<b> 'hue=$&_^%~#{}'
"""


def read(commands: str) -> list[list[str]]:
    lines = typed(commands.replace("WORDS", "--tokenizer whitespace"))
    return [[TEXTS.get(word, word) for word in line] for line in lines]


# The same file inside documents of one's own: another size, another font, a quotation mark that babel made active.
INSIDE = {
    "paper": r"""
\documentclass[12pt,a5paper]{article}
\usepackage[T1]{fontenc}
\usepackage{amsmath,amssymb,booktabs,graphicx}
\usepackage[table]{xcolor}
\begin{document}
\catcode`\"=\active \def"{\errmessage{A quotation mark was obeyed}}
Before. \input{inside} Between. \input{inside} After.
\end{document}
""",
    "slide": r"""
\documentclass[aspectratio=169,xcolor=table]{beamer}
\usepackage{booktabs}
\newcommand{\attntitle}[1]{}
\newcommand{\attnaside}[1]{}
\begin{document}
\begin{frame}{A slide}\input{inside}\end{frame}
\end{document}
""",
}


def compiled(folder: Path, name: str) -> str:
    """Compile `name`.tex, without running any program from within it; return what is wrong, or ""."""
    options = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    env = os.environ | {"max_print_line": "1000", "openin_any": "p"}
    command = ["pdflatex", *options, f"{name}.tex"]
    done = subprocess.run(command, cwd=folder, input=b"", capture_output=True, env=env, timeout=120)
    log = (done.stdout + done.stderr).decode("utf-8", "replace")
    if error := re.search(r"^! .*", log, re.M) or re.search(r"Missing character: .*", log):
        return error[0]
    if done.returncode:
        return f"exit code {done.returncode}"
    over = max(map(float, re.findall(r"Overfull \\[hv]box \(([\d.]+)pt too", log)), default=0.0)
    return f"{over:.1f} points over the edge" if over > MOST_OVER else ""


def tried(line: list[str], folder: Path, name: str, inside: list[str]) -> str:
    """Write what a command line shows, and compile it alone, then inside other documents; return what is wrong."""
    ran = attn(*line, "-f", "latex", timeout=120)
    if ran.code:
        return f"attn: {ran.err}"
    for file in (name, "inside"):
        (folder / f"{file}.tex").write_text(ran.out, encoding="utf-8")
    others = inside if line[0] != "exercise" else []  # that is a document of its own, to be printed
    found = ((other, compiled(folder, other)) for other in (name, *others))
    return next((f"in {other}: {wrong}" for other, wrong in found if wrong), "")


def main(arguments: list[str]) -> int:
    failed, lines = 0, read(COMMANDS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(*arguments[:1] or [temporary])
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in INSIDE.items():
            (folder / f"{name}.tex").write_text(text, encoding="utf-8")
        for n, line in enumerate(lines):
            wrong = tried(line, folder, f"{n:02d}", ["paper", "slide"] if n < ON_SLIDES else ["paper"])
            failed += bool(wrong)
            print(f"{n:02d}  {wrong or 'fine':40}  {shlex.join(line)[:70]}", flush=True)
    print(f"{len(lines) - failed} of {len(lines)} compile.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
