"""Files of word vectors: which format one has, and how it is read."""
