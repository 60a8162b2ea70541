"""Text to tokens, and word pieces to words."""
