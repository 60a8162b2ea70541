"""Where attention comes from: a text, matrices, weights, scores, a checkpoint."""
