"""attn live: a full screen that answers while you type."""

from os import environ

environ.setdefault("TEXTUAL_FPS", "1000")  # at 60, an answer would wait for the next frame: up to 33 ms
environ.setdefault("ESCDELAY", "50")  # ms until Esc is taken for itself, and no longer for the start of a key
