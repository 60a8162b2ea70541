"""The command line: options, commands, errors, and the delivery of results. Typer is known here alone."""
