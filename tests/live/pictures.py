"""The pictures of docs/live.md: `python -m tests.live.pictures [--write]`; exit code 1 if one is out of date."""

import argparse
import sys
from pathlib import Path

from attn_cli.cli.commands.live import EXAMPLE
from attn_cli.io.terminal import TRUECOLOR, Terminal
from attn_cli.live.panes import Paper
from attn_cli.live.scene import compose
from attn_cli.live.session import Session, begin
from attn_cli.live.sources import TextSource
from attn_cli.render.documents.svg import picture
from attn_cli.render.screen.text import words
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

FOLDER = Path(__file__).parents[2] / "docs" / "live"
PICTURES = {  # name: the palette, the size, the text, the actions
    "first": ("viridis", (80, 24), EXAMPLE, ()),
    "mask": ("viridis", (80, 24), EXAMPLE, ("mask", "compare")),
    "wide": ("viridis", (120, 40), EXAMPLE, ("move 0 1", "off")),
    "large": ("blues", (80, 24), "She likes strong coffee", ("large",)),
    "heads": ("viridis", (80, 24), EXAMPLE, ("head -1",)),
}


def after(text: str, actions: tuple[str, ...], view: View) -> Session:
    session = begin(TextSource(Settings()), text, Settings(), view)
    for action in actions:
        name, *numbers = action.split()
        session.press(name, *map(int, numbers))
        if session.is_behind:
            question = session.state.question
            session.take(question, session.source.compute(question))
    return session


def drawn(name: str) -> str:
    palette, (width, height), text, actions = PICTURES[name]
    session = after(text, actions, View(palette=palette))
    terminal = Terminal(width, TRUECOLOR, dark=palette == "viridis")
    paper = Paper(width, height - 1, terminal, session.view).sized(width, height - 1)
    scene = compose(session.state, session.seen, paper, session.said, False)
    line = words([(session.state.question.text, "bold")], terminal)
    return picture([line, *scene.lines], palette, f"attn live: {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.pictures", description=__doc__)
    parser.add_argument("--write", action="store_true")
    is_written = parser.parse_args().write
    old = 0
    for name in PICTURES:
        path, made = FOLDER / f"{name}.svg", drawn(name)
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            old += 1
            print(f"{path.name} {'written' if is_written else 'is out of date'}")
            if is_written:
                path.parent.mkdir(exist_ok=True)
                path.write_text(made, encoding="utf-8")
    return 1 if old and not is_written else 0


if __name__ == "__main__":
    sys.exit(main())
