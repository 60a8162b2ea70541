"""What whole processes of attn are measured against: Python itself, NumPy, gensim."""

import sys

NOTHING = [sys.executable, "-c", "pass"]
NUMPY = [sys.executable, "-c", "import numpy"]
_LOAD = (
    "import sys; from gensim.models import KeyedVectors; KeyedVectors.load_word2vec_format(sys.argv[1], {})"
)
GENSIM_TEXT = [sys.executable, "-c", _LOAD.format("no_header=True")]
GENSIM_BINARY = [sys.executable, "-c", _LOAD.format("binary=True")]
