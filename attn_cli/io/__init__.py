"""Bytes and terminals: files, streams, progress. Nothing in here knows attention."""
