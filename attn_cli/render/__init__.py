"""Results in every format: blocks of a screen, documents, data, figures, pages, scripts."""
