"""HTTP for downloads: http and https only, a time limit per network operation, errors in one line.

Built on urllib. pooch (with requests) would make it some 60 lines shorter, but cannot resume, reads the page that comes
with a redirection into memory, and ignores the machine's own certificates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING

from attn_cli.errors import FileError, InputError
from attn_cli.io.escape import visible

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse
    from urllib.request import OpenerDirector, Request

CHUNK = 1 << 18
KEPT = "Try again: what has arrived is kept."
NO_NETWORK = (
    "Is there a network? ATTN_MIRROR names another place. A file fetched otherwise: attn vectors import FILE."
)
TIMEOUT = 20.0  # seconds for one network operation


class RefusalError(FileError):
    """The server answered, but not with the file; `status` is the HTTP status."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint)
        self.status = status


def _opener() -> OpenerDirector:
    """Return urllib's opener, with the environment's proxies, which follows redirections to http and https only."""
    from urllib import parse, request

    class Redirects(request.HTTPRedirectHandler):
        def http_error_302(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
        ) -> HTTPResponse | None:
            fp.close()  # the page that comes with a redirection may be endless
            target = parse.urljoin(req.full_url, headers.get("Location", ""))
            if not target.lower().startswith(("http://", "https://")):
                raise ValueError(f"it redirects to {target}")
            answer: HTTPResponse | None = super().http_error_302(req, fp, code, msg, headers)
            return answer

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    opener = request.build_opener(Redirects())
    opener.addheaders = [("User-Agent", "attn")]
    return opener


def ask(url: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """Open an http or https address; raise FileError if it cannot be reached or does not answer with the file."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    try:
        answer: HTTPResponse = _opener().open(Request(url, headers=dict(headers or {})), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        raise _refusal(url, error.code, error.reason) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(url, error, NO_NETWORK) from None
    if answer.status != 200 and not (answer.status == 206 and headers):
        answer.close()
        raise _refusal(url, answer.status, answer.reason)
    return answer


def arriving(answer: HTTPResponse, url: str) -> Iterator[bytes]:
    """Yield the body of an answer as it arrives; raise FileError if it ends before its announced end."""
    from http.client import HTTPException

    left = answer.length
    while left is None or left > 0:
        try:
            piece = answer.read1(CHUNK if left is None else min(CHUNK, left))
        except (OSError, HTTPException, ValueError) as error:
            raise _unreachable(url, error) from None
        if not piece and left:
            raise _unreachable(url, f"the connection ended {left:,} bytes too early")
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece


def body_of(url: str, limit: int) -> bytes:
    """Return the whole of a small file."""
    body = bytearray()
    with contextlib.closing(ask(url)) as answer:
        for piece in arriving(answer, url):
            body += piece
            if len(body) > limit:
                name = url.rpartition("/")[2]
                raise InputError(f"{name} from {host_of(url)} is above the limit of {limit:,} bytes.")
    return bytes(body)


def _unreachable(url: str, why: Exception | str, hint: str = KEPT) -> FileError:
    reason = getattr(why, "reason", why)  # a URLError holds the error that caused it
    reason = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return FileError(_failure(url, str(reason)), hint)


def _refusal(url: str, status: int, reason: str) -> RefusalError:
    hint = "Try again later, or set ATTN_MIRROR to a mirror."
    return RefusalError(_failure(url, f"{status} {reason}"), hint, status)


def _failure(url: str, reason: str) -> str:
    """Return the line that says why a download failed; a server's words are made printable and cut."""
    printable = visible(" ".join(reason.split())[:300]).rstrip(".")
    return f"Cannot download {url.rpartition('/')[2]} from {host_of(url)}: {printable}."


def host_of(url: str) -> str:
    """Return an address's host, printable."""
    from urllib.parse import urlsplit

    return visible(urlsplit(url).netloc)
