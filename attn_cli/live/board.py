"""The screen below the text line, as a Textual widget: it shows a scene, and says what was clicked."""

from __future__ import annotations

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from attn_cli.live.scene import Hit, Scene


class Board(Widget):
    """Shows a scene line by line; only lines that changed are written to the terminal."""

    can_focus = True

    class Clicked(Message):
        """Something was clicked, `times` times in a row."""

        def __init__(self, hit: Hit, times: int) -> None:
            super().__init__()
            self.hit = hit
            self.times = times

    class Resized(Message):
        """The board has another size."""

    def __init__(self) -> None:
        super().__init__(id="board")
        self.scene: Scene | None = None
        self.strips: list[Strip] = []
        self.is_dragged = False

    def show(self, scene: Scene) -> None:
        """Show a scene in place of the one before."""
        self.scene = scene
        width = self.size.width
        strips = [Strip(line, width) for line in scene.lines]
        for y in range(max(len(strips), len(self.strips))):
            if self.strips[y : y + 1] != strips[y : y + 1]:
                self.refresh(Region(0, y, width, 1))
        self.strips = strips

    def render_line(self, y: int) -> Strip:
        """Return a line of the scene."""
        if y < len(self.strips):
            return self.strips[y].adjust_cell_length(self.size.width)
        return Strip.blank(self.size.width)

    def on_resize(self) -> None:
        """Say that another scene is needed."""
        self.strips = []
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Say what was clicked."""
        hit = self.scene.hit(event.x, event.y) if self.scene else None
        if hit is not None and hit.action != "slider":
            self.post_message(self.Clicked(hit, event.chain))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to move the slider."""
        hit = self.scene.hit(event.x, event.y) if self.scene else None
        if hit is not None and hit.action == "slider":
            self.is_dragged = True
            self.capture_mouse()
            self.post_message(self.Clicked(hit, 1))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the slider."""
        if self.is_dragged and self.scene is not None:
            hit = self.scene.hit(event.x, self.scene.status[0])
            if hit is not None and hit.action == "slider":
                self.post_message(self.Clicked(hit, 1))

    def on_mouse_up(self) -> None:
        """Let the slider go."""
        if self.is_dragged:
            self.is_dragged = False
            self.release_mouse()

    def on_mouse_scroll_down(self) -> None:
        """Move down."""
        self.post_message(self.Clicked(Hit("down"), 1))

    def on_mouse_scroll_up(self) -> None:
        """Move up."""
        self.post_message(self.Clicked(Hit("up"), 1))
