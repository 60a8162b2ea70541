"""The command line: options, commands, errors, and the delivery of results. Only this package imports Typer."""
