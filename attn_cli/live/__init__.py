"""attn live: a full screen that answers while you type.

Textual is known to `app`, `board`, `driver`, `tape` and `text_line` alone.
"""
