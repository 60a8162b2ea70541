"""The commands of data/making, with the options, the errors and the progress of attn's own: run from the repository."""

import sys

from attn_cli.cli import app

app.COMMANDS.clear()
app.COMMANDS.update(
    {
        name: ("data.making.commands", name.replace("-", "_"))
        for name in (
            "train",
            "encoder",
            "label",
            "one-layer",
            "passages",
            "splice",
            "graft",
            "exchange",
            "stories",
            "widen",
            "leads",
            "pretrain",
            "language",
            "likeness",
            "shown",
        )
    }
)
sys.exit(app.main(sys.argv[1:]))
