"""What whole processes of attn are measured against: Python itself, NumPy, gensim."""

import sys

NOTHING = [sys.executable, "-c", "pass"]
NUMPY = [sys.executable, "-c", "import numpy"]
LIBRARIES = [
    sys.executable,
    "-c",
    "import numpy, typer, rich.segment",
]  # what `attn self` computes and draws with
_LOAD = (
    "import sys; from gensim.models import KeyedVectors; KeyedVectors.load_word2vec_format(sys.argv[1], {})"
)
GENSIM_TEXT = [sys.executable, "-c", _LOAD.format("no_header=True")]
GENSIM_BINARY = [sys.executable, "-c", _LOAD.format("binary=True")]

# sys.argv: a checkpoint's folder, the threads, the token ids. It prints the seconds and the peak in KiB.
TRANSFORMERS = """
import json, sys
import torch
from transformers import AutoModel, BertModel, GPT2Model  # the models, too, are loaded before the clock starts
from tests.bench.pretrained import measured

torch.set_num_threads(int(sys.argv[2]))
ids = torch.tensor([json.loads(sys.argv[3])])

def attentions():
    model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager")
    with torch.no_grad():
        return [layer.numpy() for layer in model(ids, output_attentions=True).attentions]

measured(attentions)
"""
# sys.argv: a checkpoint's folder, the name of a GGUF file in it or nothing, the layer, the token ids. A whole process
# that prints one layer's weights; what cuts a text into tokens is not even loaded.
WHOLE_TRANSFORMERS = """
import json, sys
import torch
from transformers import AutoModel

folder, file, layer, ids = sys.argv[1:]
model = AutoModel.from_pretrained(folder, attn_implementation="eager", gguf_file=file or None)
with torch.no_grad():
    found = model(torch.tensor([json.loads(ids)]), output_attentions=True).attentions[int(layer)]
json.dump(found[0].tolist(), sys.stdout)
"""
