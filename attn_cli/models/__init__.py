"""From word vectors to queries, keys and values: projections, encoder layers, model files."""
