"""attn live: a full screen that answers while you type."""
