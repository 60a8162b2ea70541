"""The one path: a text, matrices, phrases or ready weights become a Trace."""
