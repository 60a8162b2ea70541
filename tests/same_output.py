"""What two versions of attn print, write and exit with, side by side: for changes that must change nothing.

`python -m tests.same_output OLD_ATTN NEW_ATTN` runs under both the commands of the docs, those of the tests' texts, in
another format each, and those below, in fresh folders with the same files. Commands that differ in the same lines are
told once. What a clock or the network decides is left out: downloads, the words per second of training, Ctrl-C.
"""

import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from pathlib import Path
from threading import current_thread

import typer

from tests import docs
from tests.cli.tables import apart, told
from tests.cli.test_exit_codes import BAD_VARIABLES, WRONG
from tests.pipeline import test_notes as notes
from tests.render.views import test_by_hand as by_hand

# A line is a command of bash, run once for each part of {a|b|c}; {NAME} has the parts of SETS. The parts of {~a|b}
# are taken in turn and make no more commands: the first run has a, the second b, the third a again.
COMMANDS = r"""
# Help, completion, usage
attn {PAGES} --help
COLUMNS=40 attn {|self|vectors train} -h
on_terminal attn {|self|cross|vectors|batch}
attn {--show-completion|--install-completion} {bash|zsh|fish|tcsh}
_ATTN_COMPLETE=complete_bash COMP_WORDS='attn {self --ma|self -f|vectors |example }' COMP_CWORD=2 attn
attn {schema|config masked|config lookup -f json|config bogus}
# Every format of every screen
attn {self|explain} "$CAT" -f {FORMATS}
attn {~self "$CAT"|explain "$SHE"|example coffee} -o x.{txt|json|jsonl|csv|tsv|md|tex|html|svg|npy|py|pdf}
# Settings
attn self "$FOX" --head {all|mean|subject|3} {~|--steps -f json|-p roles-deep}
attn self "Don't e-mail: 3.14, naïve 😀!" --tokenizer {words|whitespace|characters} {~|--keep-punctuation}
attn {self|explain|compare --vary score=scaled,dot|masked --show mask|self --head all} "$FOX" --width {20|200}
# Colours, terminals, variables, files of settings
attn {explain|compare --vary mask=none,causal|self --head all|masked --show mask} "$SHE" --color always
attn self "$FOX" --color always --palette {viridis|cividis|blues|greys} -f {table|bars|html}
{TERM=xterm|TERM=dumb|TERM=xterm-direct|COLORTERM=truecolor} attn self "$SHE" --color always
{NO_COLOR=1|FORCE_COLOR=1|CLICOLOR_FORCE=1} attn explain "$SHE"
{COLORFGBG='0;15'|NO_COLOR=1|TERM=dumb|COLUMNS=50} on_terminal attn {~self|explain} "$SHE"
PYTHONIOENCODING={ascii|latin-1} attn {self|explain} "naïve 😀 café" -e random
ATTN_{VARIABLES} attn {~self|self -f json} "the cat"
ATTN_FORMAT=json ATTN_SEED=-1 ATTN_TEMPRATURE=1 attn {self x|vectors info|config}
printf '{TOML}' > attn.toml; attn {~self "a b" -e random|config self}
mkdir -p ~/.config/attn; echo '{score = "dot"|bogus = 1}' > ~/.config/attn/config.toml; attn {self "$SHE"|config}
# Texts: long, from a pipe, hostile
attn {self|masked|explain} - {|-q 13} < long.txt
attn self - -f {bars|latex|html|svg|markdown|csv --top 1|json|npy|code:numpy} < long.txt
attn self - {--full -o x.npy|-o x.csv|--head all|--threads 1|--dtype float32|--mask window:3 --width 40} < long.txt
attn {masked - --show mask|cross "$SHE" -|compare - --vary score=scaled,dot|self - -p roles-deep} < long.txt
echo "$SHE" | attn {self|masked|explain -|explain --context -|cross "$CAT"|cross - "$CAT"|cross - -|lookup a=1 b=2}
printf {'caf\xe9 noir'|'\xff\xfet\x00h\x00'|'nul \x00 x'} | attn {self|batch}
attn self {""|"... !"|"a"|"the the"|"$(printf %0200d 0)"} -e random {~|-f json}
attn self --tokenizer whitespace -e random --color always -f {FORMATS} < hostile.txt
attn {explain|masked --show mask|self --oov zero} --tokenizer {~whitespace|characters} --top 9 < hostile.txt
# Other commands
printf 'she\tlikes coffee\nno tab\n' | attn batch --kind cross {|--keep-going}
attn batch {--steps --head all|--top 1|--kind masked --pad 1|-e random --seed 3|-o x.jsonl} --keep-going < lines.txt
# Vectors and learning
attn vectors {list|info|info my.txt|nearest coffee|nearest Colour --top 3|analogy man king woman|remove x} {~|-f json}
attn vectors {nearest she --precision 9|analogy she likes coffee --top 1} -e my.txt {~|-f json}
attn vectors export {~my.txt|--words 50} -o x.{txt|vec|bin|safetensors|csv}; attn vectors info x.{~txt|vec|bin}
attn vectors import my.txt --name {mine|word2vec|../x}; attn vectors list
{gzip|xz} my.txt; attn vectors import my.txt.* --name my; attn self "$SHE" -e my; attn vectors {~info|remove} my
ATTN_MIRROR={~http://127.0.0.1:9|nonsense} attn vectors download {|glove}
without {gensim; attn vectors train lines.txt|torch; attn learn train t.conllu --layers 2} -o x.safetensors
attn learn train t.conllu -o m.safetensors --epochs 1; attn {self "$CAT" -p|learn score} ./m.safetensors {~|t.conllu}
# Errors, beside those of tests/cli/test_exit_codes.py
printf '{|a 1 2\nb 3\n|a 1 x\n|3 2\na 1 2\n|a 1e200 1e200\n|a nan 1\n}' > v; attn {~self "a b" -e|vectors info} ./v
printf '{\x93NUMPY\x01\x00x|PK\x03\x04x|\x80\x04\x95c|\0\0\0\0\0\0\0\x80#|%%PDF}' > x; attn {self a -e|compute|show} ./x
attn {~self x|explain x|example coffee} -o {none/x.json|/|/proc/x.csv}
mkdir sheet; echo mine > sheet/key.md; attn exercise -o sheet {|--force|-f json}
attn {self x|self x -f json|explain x|schema|--help|example|vectors info|batch lines.txt} {~> /dev/full|>&-}
attn {self|explain} {<&-|x 2>&-}
"""
SETS = {
    "PAGES": "|".join(map(" ".join, docs.commands())),
    "FORMATS": "table|bars|json|jsonl|csv|tsv|markdown|latex|html|svg|npy|code:numpy|code:torch|code:keras",
    "VARIABLES": "|".join(["SCORE=dot|TEMPERATURE=0.5|FORMAT=csv|HEAD=all|WIDTH=40", *apart(BAD_VARIABLES)]),
    "TOML": r'temperature = 0.5\nscore = "dot"|temprature = 1|[slef]|seed = 1\nseed = 2|temperature = "1"|seed = '
    r'|output = "x.json"|format = "pdf"|[self]\ndim = 2|keep-punctuation = true\npad = 1|masked = true',
}

THREES = itertools.product(("fox", "cat", "hare", "hen", "wolf"), repeat=3)
FILES = {  # that the commands find
    "long.txt": " ".join(f"The {a} jumped over the lazy {b} while a {c} watched." for a, b, c in THREES),
    "hostile.txt": "\x1b[31mred \x1b]0;t\x07 \x9b31m a\u202eb \u200bz x\x00y [red] [/b] :smile: <script>1</script>"
    "\n&amp; | a|b ` **b** _i_ [x](y) # =1+1 @x =cmd|'/c'!A0 \" a,b \\input{x} $x$ % ^_ ~ \\ {0} 你好 שלום e\u0301",
    "lines.txt": "She likes coffee\n...\nThe cat sat on the mat\nA dog barked\n",
    "t.conllu": "1\tA\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
    "3\tbarks\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n",
    "my.txt": "she 0.2 0.9\nlikes 0.75 0.5\ncoffee 0.4 0.7\n",
}
BEFORE = """
CAT="The cat sat on the mat" FOX="The quick brown fox jumped over the lazy dog" SHE="she likes coffee"
on_terminal() { "$PYTHON" -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$@"; }
without() { echo "raise ImportError" > "$1.py"; export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1; }
"""
JOBS, SHOWN = 2, 12  # commands at a time; lines of each difference
VARYING = re.compile(rb"[\d,]+ words/s  [\d:]+ left")

Ran = dict[str, bytes]  # how a command ended: exit code, out, err, and each file made, changed or removed


def commands() -> Iterator[str]:
    """Yield every command: of each page of the docs all in one, as they share a folder."""
    for name, page in docs.pages().items():
        lines = page.read_text(encoding="utf-8").splitlines()
        blocks = [lines[one.start : one.stop] for one in docs.fences(lines) if one.language == "console"]
        typed = [line[2:] for block in blocks for line in block if line.startswith(("$ ", "> "))]
        yield "\n".join([f": {name}", *typed])
    for line in COMMANDS.splitlines():
        if line and not line.startswith("#"):
            yield from expanded(line)
    formats = itertools.cycle(SETS["FORMATS"].split("|"))
    for folder, blocks in {"notes": notes.COMMANDS, "by_hand": [line for line, _ in by_hand.SCREENS]}.items():
        for block in blocks:
            line = block.splitlines()[0].replace(" V", " -e v.txt -p identity")
            yield f"cd {folder}; attn {line} -f {next(formats)}"
    for words, _ in told(WRONG):
        yield shlex.join(["attn", *words])


def expanded(line: str) -> Iterator[str]:
    """Yield a line with one part of each of its braces, in every combination."""
    texts = re.split(r"\{([A-Z_]+|[^{}]*\|[^{}]*)\}", line)
    braces = [SETS.get(inside, inside) for inside in texts[1::2]]
    turns = [itertools.cycle(inside[1:].split("|")) if inside[:1] == "~" else None for inside in braces]
    free = [[""] if inside[:1] == "~" else inside.split("|") for inside in braces]
    for parts in itertools.product(*free):
        texts[1::2] = [next(turn) if turn else part for part, turn in zip(parts, turns, strict=True)]
        yield "".join(texts).strip()


def lay_out(folder: Path) -> None:
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content, "utf-8")
    for place in ("notes", "by_hand"):
        (folder / place).mkdir()
    by_hand.write_files(folder / "by_hand")
    for name, content in (line.split(": ", 1) for line in notes.FILES.splitlines()):
        (folder / "notes" / name).write_text(content.replace(r"\n", "\n"))


def run(command: str, attn: Path, place: Path, files: Path) -> Ran:
    """Run a command at `place`, in a fresh copy of `files`, with `attn` as the attn that it finds."""
    shutil.rmtree(place, ignore_errors=True)
    work = Path(shutil.copytree(files, place / "work"))
    (place / "attn").symlink_to(attn)
    env = {"PATH": f"{place}:/usr/bin:/bin", "HOME": str(work), "TMPDIR": str(place), "LC_ALL": "C.UTF-8"}
    env |= {"TERM": "xterm-256color", "COLUMNS": "80", "PYTHONHASHSEED": "0", "PYTHON": sys.executable}
    script = ["timeout", "600", "bash", "-c", BEFORE + command]
    done = subprocess.run(script, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    ran = {"exit code": b"%d" % done.returncode, "out": done.stdout, "err": VARYING.sub(b"", done.stderr)}
    before, after = contents(files), contents(work)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    return ran | {name: after.get(name, b"(removed)") for name in changed}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def in_lines(ran: Ran) -> list[str]:
    """Return how a command ended, line by line, and cut behind commas and brackets: a difference stays short."""
    cuts = re.compile(r"\n|(?<=[,\]}>])")
    return [
        f"{name}: {piece}"
        for name in ran
        for piece in cuts.split(ran[name].decode(errors="backslashreplace"))
    ]


def difference(old: Ran, new: Ran) -> tuple[str, ...]:
    a, b = in_lines(old), in_lines(new)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    lines = unified_diff(a[same : same + 500], b[same : same + 500], n=0, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))


def main(old_attn: str, new_attn: str, only: str = "") -> None:
    """Compare two programs over all commands, or those that hold some letters."""
    chosen = [command for command in dict.fromkeys(commands()) if only in command]
    sides = [
        Path(shutil.which(one) or sys.exit(f"There is no {one}.")).absolute() for one in (old_attn, new_attn)
    ]
    codes, alike = Counter(), defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        files = Path(folder, "files")
        lay_out(files)

        def both(command: str) -> list[Ran]:
            return [run(command, attn, Path(folder, current_thread().name), files) for attn in sides]

        for command, (old, new) in zip(chosen, pool.map(both, chosen), strict=True):
            codes[old["exit code"].decode()] += 1
            if old != new:
                alike[difference(old, new)].append(command)
    for lines, found in sorted(alike.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(found)} differ so:", *found[:4], *["..."][: len(found) > 4], sep="\n  ")
        print(*lines[:SHOWN], *["..."][: len(lines) > SHOWN], sep="\n")
    print("\nExit codes:", ", ".join(f"{code} ({codes[code]})" for code in sorted(codes, key=int)))
    print(f"{len(chosen)} commands, {sum(map(len, alike.values()))} differ")
    sys.exit(bool(alike))


if __name__ == "__main__":
    typer.run(main)
