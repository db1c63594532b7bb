"""Uploaded files: read within limits, and checked before they are used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from cotransport.data import evaluation_squares
from cotransport.data.decoding import Encoded, image_size
from cotransport.errors import DataError, TooManyPixelsError
from cotransport.server.failures import RefusedError

MOST_PIXELS = 50_000_000
"""Largest width times height of an image."""
MOST_BYTES_AT_ONCE = 1 << 30
"""Largest total size of the bodies that are read or waiting at the same time."""
MOST_SECONDS = 600.0
"""Time that a body may take to arrive."""
MOST_FIELDS, LONGEST_FIELD = 5000, 4096
CHECKED_SIDE = 32
"""Images of a lesson are decoded once, at this size, to check that they can be."""

Body = TypeVar("Body")


@dataclass(frozen=True)
class Limits:
    """The most that a request may contain."""

    bytes: int
    files: int


PREDICT = Limits(bytes=64 << 20, files=64)
TEACH = Limits(bytes=512 << 20, files=2000)
OTHER = Limits(bytes=64 << 10, files=0)


class Budget:
    """The memory that all bodies may take together."""

    def __init__(self, most: int = MOST_BYTES_AT_ONCE) -> None:
        self._left = most

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Reserve this many bytes inside the context."""
        if size > self._left:
            raise RefusedError(429, "too many uploads at once. Try again in a moment")
        self._left -= size
        try:
            yield
        finally:
            self._left += size


@contextmanager
def body_within(request: Request, limits: Limits, budget: Budget) -> Iterator[None]:
    """Reserve the memory for a body, which may be read inside the context."""
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isascii() and declared.isdecimal() else limits.bytes
    if size > limits.bytes:
        raise _too_large(limits)
    with budget.taken(size):
        yield


async def read_body(request: Request, limits: Limits = OTHER) -> bytes:
    """A body that has no files."""

    async def whole() -> bytes:
        return b"".join([chunk async for chunk in _limited(request, limits)])

    return await _in_time(whole())


async def read_form(request: Request, limits: Limits) -> FormData:
    """The fields and files of a body, in their order."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RefusedError(415, "Content-Type: send multipart/form-data with a field `files`")
    parser = MultiPartParser(
        request.headers,
        _limited(request, limits),
        max_files=limits.files,
        max_fields=MOST_FIELDS,
        max_part_size=LONGEST_FIELD,
    )
    try:
        return await _in_time(parser.parse())
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise RefusedError(413, f"files: at most {limits.files:,} in one request") from None
        raise RefusedError(400, f"the body is not a valid form: {error.message}") from None


async def _in_time(body: Coroutine[Any, Any, Body]) -> Body:
    """What is read from a body, if it arrives in time."""
    try:
        return await asyncio.wait_for(body, MOST_SECONDS)
    except (asyncio.TimeoutError, ClientDisconnect):
        raise RefusedError(408, "the body did not arrive in time") from None


async def _limited(request: Request, limits: Limits) -> AsyncGenerator[bytes, None]:
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > limits.bytes:
            raise _too_large(limits)
        yield chunk


def _too_large(limits: Limits) -> RefusedError:
    size = f"{limits.bytes >> 20} MiB" if limits.bytes >= 1 << 20 else f"{limits.bytes >> 10} KiB"
    return RefusedError(413, f"the body has more than {size}. Send fewer or smaller files")


async def encoded_files(uploads: Sequence[UploadFile]) -> list[Encoded]:
    """The bytes and names of uploaded files. Images with too many pixels are refused."""
    files = [Encoded(await one.read(), base_name(one.filename or "")) for one in uploads]
    await run_in_threadpool(check_pixels, files)
    return files


def base_name(name: str) -> str:
    r"""The last part of a client's file name, which may be a path on their machine.

    >>> base_name("C:\\photos\\a.jpg"), base_name("photos/b.jpg"), base_name("")
    ('a.jpg', 'b.jpg', 'image')
    """
    return name.replace("\\", "/").rpartition("/")[2] or "image"


def check_pixels(files: Sequence[Encoded]) -> None:
    """Refuse images with too many pixels. Only their headers are read."""
    for file in files:
        try:
            width, height = image_size(file)
        except TooManyPixelsError:
            width, height = MOST_PIXELS + 1, 1
        except DataError:  # reported where the image is decoded
            continue
        if width * height > MOST_PIXELS:
            raise RefusedError(413, f"{file.name}: more than the {MOST_PIXELS:,} pixels allowed. Scale it down")


def check_images(files: Sequence[Encoded]) -> None:
    """Refuse files that cannot be decoded: a lesson would stop at the first one."""
    errors: dict[int, DataError] = {}
    for _ in evaluation_squares(files, CHECKED_SIDE, errors.__setitem__):
        pass
    if errors:
        more = f" ({len(errors) - 1} more cannot be read either)" if len(errors) > 1 else ""
        raise RefusedError(400, str(errors[min(errors)]) + more, sorted(errors))
