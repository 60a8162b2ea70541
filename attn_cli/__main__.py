"""The entry point: no traceback on a signal, even during start-up; fast start and fast exit.

Four things keep a run of `attn` short; docs/decisions/0002-start-up.md has the measurements.
"""

# The builtin below `signal`, which would load enum first: an interrupt must find us ready.
import _signal  # type: ignore[import-not-found]
import os
import sys

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


def _leave(signum: int, frame: object) -> None:
    """End at a signal; until a file is written or a bar is drawn there is nothing to clean up."""
    signals = sys.modules.get("attn_cli.io.signals")
    if hasattr(signals, "end"):  # it may be half imported
        signals.end(signum)  # type: ignore[union-attr]
    else:
        os._exit(128 + signum)


def run() -> None:
    """Run attn, and end the process with its exit code."""
    for name in ENDING:
        number = getattr(_signal, name, None)
        if number is not None and _signal.getsignal(number) != _signal.SIG_IGN:  # nohup stays in force
            _signal.signal(number, _leave)
    import gc  # not yet loaded when Python starts, unlike those above

    gc.disable()  # imports make no garbage worth a search; main() turns it on again
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread only spins on small matrices
    from attn_cli.io.console import check_standard_streams

    check_standard_streams()
    from attn_cli.cli.app import main

    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            pass  # main() has spoken of it, or the reader has left
    if sys.platform == "darwin" and "multiprocessing" in sys.modules:
        sys.exit(code)  # semaphores of processes that were spawned are removed in an orderly shutdown alone
    # All output is flushed; an orderly interpreter shutdown would cost a tenth of the run time.
    os._exit(code)


if __name__ == "__main__":
    run()
