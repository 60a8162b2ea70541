"""Text to tokens, word pieces to words, and the signs of another language."""
