"""Pretrained word vectors of gensim-data, downloaded and checked."""
