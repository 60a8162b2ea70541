"""A run over an input whose parts are computed, and written, by the workers of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attn_cli
from attn_cli.batch import manifest as manifests
from attn_cli.batch.cut import Plan
from attn_cli.batch.inputs import Input, blocks_of
from attn_cli.batch.lines import count_lines
from attn_cli.batch.manifest import Part
from attn_cli.batch.part_task import PartTask, compute_part, holds, job_bytes, scan
from attn_cli.batch.parts import Keeper, disown, own
from attn_cli.batch.storage import is_url
from attn_cli.batch.workers import Failure
from attn_cli.errors import AttnError, WriteError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from attn_cli.batch.cluster import Cluster
    from attn_cli.batch.folder import Folder
    from attn_cli.batch.job import Job
    from attn_cli.batch.manifest import Manifest

PATIENCE = 10.0  # seconds for a part to be seen here: shared folders are late


class ClusterRun:
    """A job over files, done by a cluster; `lines` and `refused` count what is written."""

    def __init__(self, job: Job, files: Sequence[Input], cluster: Cluster) -> None:
        self.job, self.cluster = job, cluster
        self.files = [Input(_absolute(file.path), file.size) for file in files]
        self.lines = self.refused = 0
        self.total: int | None = None
        self.errors: dict[int, BaseException] = {}  # of bad lines, by their parts

    @property
    def done(self) -> float | None:
        """The share of the lines that is done, where their number is known."""
        return self.lines / self.total if self.total else None

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the input, which the workers read."""
        blocks = [blocks_of(file) for file in self.files]
        pairs = ((file, block) for file, found in zip(self.files, blocks, strict=True) for block in found)
        scans = iter(self.cluster.in_order(scan, pairs))
        self.plan = Plan(self.files, [[next(scans) for _ in found] for found in blocks])
        self.total = self.plan.lines
        return self.plan.fingerprint

    def count(self) -> int:
        """Return how many lines the input has."""
        return count_lines(self.files) if self.total is None else self.total

    def check(self, folder: Folder, parts: list[Part]) -> list[bool]:
        """Return of each part whether it is there as it was written."""
        found: list[bool] = self.cluster.in_order(holds, ((_absolute(folder.path), part) for part in parts))
        return found

    def write_parts(self, folder: Folder, manifest: Manifest, report: Callable[[int], None]) -> None:
        """Let the workers write the parts that are missing; raise the error of the first bad line."""
        self.lines, self.refused = manifest.lines, manifest.refused
        keeper = Keeper(folder, manifest)
        numbers: list[int] = []  # of the parts that were handed out
        try:
            keeper.store()  # from now on the folder is known to be a run's
            tasks = self._tasks(folder, own(folder), manifest, numbers)
            with cleaned_up(keeper.end):
                self._write(folder, keeper, tasks, numbers, report)
        except BaseException:
            keeper.leave()
            raise
        finally:
            with suppress(AttnError):
                disown(folder)
        if self.errors:
            keeper.leave()
            raise self.errors[min(self.errors)]
        keeper.finish()

    def _write(
        self,
        folder: Folder,
        keeper: Keeper,
        tasks: Iterator[tuple[PartTask]],
        numbers: list[int],
        report: Callable[[int], None],
    ) -> None:
        """Name the parts that arrive."""
        for n, found in self.cluster.results(compute_part, tasks):
            if isinstance(found, Failure):
                self._note(numbers[n], n, found.exception())
                continue
            _arrived(folder, found)
            keeper.add(found)
            self.lines, self.refused = self.lines + found.lines, self.refused + found.refused
            report(self.lines)

    def _tasks(
        self, folder: Folder, owner: str, manifest: Manifest, numbers: list[int]
    ) -> Iterator[tuple[PartTask]]:
        """Yield the tasks that are left, up to a bad line."""
        job, path = job_bytes(self.job), _absolute(folder.path)
        files = manifest.run["files"] if self.cluster.scheduler is not None else {}
        for cut in self.plan.parts(frozenset(manifest.parts)):
            if self.errors:
                return
            numbers.append(cut.number)
            yield (PartTask(attn_cli.__version__, manifests.LINES, job, files, path, owner, cut),)

    def _note(self, part: int, task: int, error: BaseException) -> None:
        """Keep the error of a bad line: the parts before it may have another; raise any other error."""
        if getattr(error, "line", None) is None:
            raise error
        self.errors[part] = error
        self.cluster.drop_after(task)


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)


def _arrived(folder: Folder, part: Part) -> None:
    """Wait until a part that a worker wrote is seen here; WriteError if it is not: then the folder is not shared."""
    if is_url(folder.path):
        return
    end = time.monotonic() + PATIENCE
    while folder.size(part.file) != part.bytes:
        if time.monotonic() > end:
            raise WriteError(
                f"A worker wrote {folder.name.rstrip('/')}/{part.file}, and it is not here.",
                "All machines must see the folder: a shared one, or s3://, gs:// or hdfs://.",
            )
        time.sleep(0.1)
