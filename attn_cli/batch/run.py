"""A run over an input: its chunks, computed here or by several processes, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from attn_cli.batch import manifest as manifests
from attn_cli.batch.compute import Computer
from attn_cli.batch.forms import FORMS
from attn_cli.batch.inputs import Input, fingerprint
from attn_cli.batch.lines import Chunks, count_lines
from attn_cli.batch.parts import Keeper, write_parts
from attn_cli.batch.write import Written, write_chunk

if TYPE_CHECKING:
    from attn_cli.batch.folder import Folder
    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Feed
    from attn_cli.batch.manifest import Manifest, Part


def written_chunks(job: Job, chunks: Chunks, workers: int = 1) -> Iterator[Written]:
    """Yield what each chunk of an input becomes, in order, up to one with an error.

    Other processes are started once there is more than one chunk to do: lines that come one by one, or are few, are
    computed here.
    """
    with Computer(job) as computer:
        for chunk in chunks:
            if workers > 1 and len(chunk.lines) == chunks.most:
                break
            found = write_chunk(computer, chunk)
            yield found
            if found.error is not None:
                return
        else:
            return
    from attn_cli.batch.workers import Workers  # only for many lines

    with Workers(job, workers) as processes:
        for found in processes.written(chunk, chunks):
            yield found
            if found.error is not None:
                return


class Run:
    """A job over an input; `lines` and `refused` count what is written."""

    def __init__(self, job: Job, feed: Feed, workers: int, files: Sequence[Input] = ()) -> None:
        self.job, self.feed, self.workers, self.files = job, feed, workers, files
        self.lines = self.refused = 0

    @property
    def done(self) -> float | None:
        """The share of the input that is read; None for a pipe."""
        return self.feed.done

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the input."""
        return fingerprint(self.files)

    def count(self) -> int:
        """Return how many lines the input has."""
        return count_lines(self.files)

    def check(self, folder: Folder, parts: list[Part]) -> list[bool]:
        """Return of each part whether it is there as it was written."""
        return [folder.holds(part) for part in parts]

    def write(self, stream: IO[bytes], report: Callable[[int], None]) -> None:
        """Write all records to a stream; raise the error of a bad line after those before it."""
        sink = FORMS[self.job.form].sink(stream, self.job)
        try:
            for chunk in written_chunks(self.job, Chunks(self.feed), self.workers):
                if chunk.data:
                    sink.write(chunk.data)
                self._count(chunk, report)
                if chunk.error is not None:
                    raise chunk.error
            sink.close()
        except BaseException:
            sink.drop()
            raise

    def write_parts(self, folder: Folder, manifest: Manifest, report: Callable[[int], None]) -> None:
        """Write the parts of a folder that are missing; lines that are in the others are left out."""
        chunks = Chunks(self.feed, part=manifests.LINES, done=frozenset(manifest.parts))
        self.lines, self.refused = manifest.lines, manifest.refused
        found = written_chunks(self.job, chunks, self.workers)
        write_parts(folder, self.job, Keeper(folder, manifest), self._counted(found, report))

    def _counted(self, chunks: Iterator[Written], report: Callable[[int], None]) -> Iterator[Written]:
        for chunk in chunks:
            yield chunk
            self._count(chunk, report)

    def _count(self, chunk: Written, report: Callable[[int], None]) -> None:
        self.lines, self.refused = self.lines + chunk.lines, self.refused + chunk.refused
        report(self.lines)
