"""The pictures of docs/live.md, which `python -m tests.live.pictures` draws."""

from pathlib import Path

from attn_cli.cli.commands.live import EXAMPLE
from attn_cli.io.terminal import TRUECOLOR, Terminal
from attn_cli.live.panes import Paper
from attn_cli.live.scene import compose
from attn_cli.live.session import begin
from attn_cli.live.sources import TextSource
from attn_cli.render.documents.svg import picture
from attn_cli.render.screen.text import words
from attn_cli.settings import Settings, View

FOLDER = Path(__file__).parents[2] / "docs" / "live"
PICTURES = {  # name: the palette, the size, the text, the actions
    "first": ("viridis", (80, 24), EXAMPLE, ()),
    "mask": ("viridis", (80, 24), EXAMPLE, ("mask", "compare")),
    "wide": ("viridis", (120, 40), EXAMPLE, ("move 0 1", "off")),
    "large": ("blues", (80, 24), "She likes strong coffee", ("large",)),
    "heads": ("viridis", (80, 24), EXAMPLE, ("head -1",)),
}


def drawn(name: str) -> str:
    palette, (width, height), text, actions = PICTURES[name]
    session = begin(TextSource(Settings()), text, Settings(), View(palette=palette))
    for action in actions:
        named, *numbers = action.split()
        session.press(named, *map(int, numbers))
        if session.is_behind:
            session.take(session.state.question, session.source.compute(session.state.question))
    terminal = Terminal(width, TRUECOLOR, dark=palette == "viridis")
    paper = Paper(width, height - 1, terminal, session.view).sized(width, height - 1)
    scene = compose(session.state, session.seen, paper, session.said, False)
    line = words([(session.state.question.text, "bold")], terminal)
    return picture([line, *scene.lines], palette, f"attn live: {name}")


if __name__ == "__main__":
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(drawn(name), encoding="utf-8")
