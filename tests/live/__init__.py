"""Tests of attn live."""
