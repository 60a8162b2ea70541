"""Pretrained word vectors, downloaded."""
