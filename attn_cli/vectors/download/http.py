"""Files from the network: over http and https alone, with a time limit on every operation, and errors in one line."""

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
WAIT = 20.0  # seconds that one operation of the network may take


class RefusalError(FileError):
    """The server answered, but not with the file; `status` is its HTTP status."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint)
        self.status = status


def _opener() -> OpenerDirector:
    """Return what opens http and https addresses, through proxies if the environment names some, and no others."""
    from urllib import request

    class Redirects(request.HTTPRedirectHandler):
        """Follows a redirection without reading the page that comes with it, which may be endless."""

        def http_error_302(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
        ) -> HTTPResponse | None:
            fp.close()
            answer: HTTPResponse | None = super().http_error_302(req, fp, code, msg, headers)
            return answer

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    proxies = {kind: url for kind, url in request.getproxies().items() if kind in ("http", "https")}
    opener = request.OpenerDirector()
    opener.addheaders = [("User-Agent", "attn")]
    for handler in (
        *(request.ProxyHandler(proxies), request.UnknownHandler(), request.HTTPHandler()),
        *(request.HTTPSHandler(), Redirects()),
        *(request.HTTPDefaultErrorHandler(), request.HTTPErrorProcessor()),
    ):
        opener.add_handler(handler)
    return opener


def ask(url: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """Open an address; raise FileError if it cannot be reached or answers with anything but the file."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    try:
        answer: HTTPResponse = _opener().open(Request(url, headers=dict(headers or {})), timeout=WAIT)
    except HTTPError as error:
        error.close()
        raise _refusal(url, f"{error.code} {error.reason}", error.code) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(url, error, NO_NETWORK) from None
    if answer.status != 200 and not (answer.status == 206 and headers):
        answer.close()
        raise _refusal(url, f"{answer.status} {answer.reason}", answer.status)
    return answer


def arriving(answer: HTTPResponse, url: str) -> Iterator[bytes]:
    """Yield what an answer holds as it arrives; raise FileError if it ends before its announced end."""
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
                name = _file_name(url)
                raise InputError(f"{name} from {host_of(url)} is above the limit of {limit:,} bytes.")
    return bytes(body)


def _unreachable(url: str, why: Exception | str, hint: str = KEPT) -> FileError:
    reason = getattr(why, "reason", why)  # a URLError holds the error that caused it
    reason = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return FileError(_cannot(url, str(reason)), hint)


def _refusal(url: str, reason: str, status: int) -> RefusalError:
    return RefusalError(_cannot(url, reason), "Try again later, or set ATTN_MIRROR to a mirror.", status)


def _cannot(url: str, reason: str) -> str:
    """Say in one line that a file cannot be had; a server's words are made safe and cut."""
    told = visible(" ".join(reason.split())[:300]).rstrip(".")
    return f"Cannot download {_file_name(url)} from {host_of(url)}: {told}."


def host_of(url: str) -> str:
    """Return an address's host, safe to print."""
    from urllib.parse import urlsplit

    return visible(urlsplit(url).netloc)


def _file_name(url: str) -> str:
    return url.rpartition("/")[2]
