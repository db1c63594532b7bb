"""What the server does for each path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from importlib.resources import files
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from cotransport.lessons.information import rollback as go_back
from cotransport.lessons.ownership import rename as give_name
from cotransport.lessons.removal import remove as remove_class
from cotransport.server import metrics, openapi, pages
from cotransport.server.answers import (
    ClassProbability,
    Health,
    ImageAnswer,
    NewVersion,
    RemoveRequest,
    RenameRequest,
    RollbackAnswer,
    RollbackRequest,
    TeachAnswer,
)
from cotransport.server.failures import RefusedError
from cotransport.server.lesson_folder import LessonOptions, class_name
from cotransport.server.service import Service
from cotransport.server.uploads import (
    PREDICT,
    TEACH,
    body_within,
    check_images,
    encoded_files,
    read_body,
    read_form,
)
from cotransport.version import __version__

TOP = 10
"""Largest number of classes per image in an answer, unless the request asks for another."""
SECONDS_BETWEEN_SIGNS = 15.0
"""How often an idle stream of events sends a comment to stay open."""
SECONDS_BETWEEN_NEWS = 0.1
VERSION_HEADER = "Cotransport-Version"
"""The version that made a prediction."""
THRESHOLD_HEADER = "Cotransport-Threshold"
"""The lowest probability of an answer that is not unknown."""
Values = TypeVar("Values", bound=BaseModel)
Result = TypeVar("Result")


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _json(values: BaseModel | list[BaseModel], status: int = 200) -> JSONResponse:
    if isinstance(values, BaseModel):
        return JSONResponse(values.model_dump(mode="json"), status)
    return JSONResponse([one.model_dump(mode="json") for one in values], status)


async def health(request: Request) -> Response:
    """Whether the server is up."""
    return _json(Health(release=__version__))


async def page(request: Request) -> Response:
    """The page. It contains no data of the model, and asks for the token if it has none."""
    authorised = request.scope["authorised"]
    return HTMLResponse(pages.page(), 200 if authorised else 401)


async def own_file(request: Request) -> Response:
    """A file that belongs to the page."""
    name = request.url.path.removeprefix("/")
    kinds = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
    return Response(files("cotransport.server").joinpath(name).read_bytes(), media_type=kinds[name])


async def documentation(request: Request) -> Response:
    """The documentation of the API."""
    return HTMLResponse(pages.documentation())


async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(openapi.document())


async def predict(request: Request) -> Response:
    """Predict the class of each file."""
    service, top = _service(request), _top(request)
    with body_within(request, PREDICT, service.budget):
        form = await read_form(request, PREDICT)
        uploads = _uploads(form)
        if not uploads:
            raise RefusedError(400, "files: give one or more image files in the field `files`")
        encoded = await encoded_files(uploads)
        await form.close()
        answer = await service.batcher.predict(encoded, top)
    found = [
        ImageAnswer(
            file=one.path,
            classes=[ClassProbability(name=str(name), probability=share) for name, share in one.classes],
            unknown=one.is_unknown,
            error=one.error,
        )
        for one in answer.predictions
    ]
    if all(one.error for one in found):
        raise RefusedError(400, found[0].error or "")
    values = [one.model_dump(mode="json", exclude={"error"} if one.error is None else set()) for one in found]
    headers = {VERSION_HEADER: str(answer.version)}
    if answer.threshold is not None:
        headers[THRESHOLD_HEADER] = f"{answer.threshold:.6g}"
    return JSONResponse(values, headers=headers)


def _uploads(form: FormData) -> list[UploadFile]:
    """The files of a form, in their order."""
    return [value for key, value in form.multi_items() if key == "files" and isinstance(value, UploadFile)]


def _top(request: Request) -> int:
    given = request.query_params.get("top", str(TOP))
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:9]) <= 10**6:
        raise RefusedError(400, "top: give a number of classes, at least 1")
    return int(given[:9])


async def teach(request: Request) -> Response:
    """Queue a lesson."""
    service = _service(request)
    service.queue.check_room()
    with body_within(request, TEACH, service.budget):
        form = await read_form(request, TEACH)
        options = _lesson_options(form)
        by_class = _files_by_class(form)
        uploads = _uploads(form)
        encoded = dict(zip(map(id, uploads), await encoded_files(uploads), strict=True))
        await form.close()
        await run_in_threadpool(check_images, list(encoded.values()))
        images = {name: [encoded[id(upload)] for upload in own] for name, own in by_class.items()}
        async with service.queue.adding:  # several requests may have arrived at once
            service.queue.check_room()
            if options.known_classes == "refuse":
                await _check_new(service, images)
            stored = await run_in_threadpool(service.queue.folder.add, images, options)
            service.queue.add(stored)
    return _json(TeachAnswer(lesson=stored.lesson.id), 202)


async def _check_new(service: Service, classes: Iterable[str]) -> None:
    """Refuse classes that are known already, or will be when the lesson's turn comes."""
    service.queue.check_not_taught(classes)
    known = await run_in_threadpool(service.known_classes)
    again = [name for name in classes if name in known]
    if again:
        raise RefusedError(409, f"{again[0]!r} is known already. Choose another name, or send known_classes=extend")


def _lesson_options(form: FormData) -> LessonOptions:
    given = {key: form[key] for key in ("known_classes", "max_forgetting") if form.get(key)}
    try:
        options = LessonOptions.model_validate(given)
    except ValidationError as error:
        raise RefusedError(400, _reason(error)) from None
    if options.max_forgetting is not None and not 0 <= options.max_forgetting <= 100:
        raise RefusedError(400, "max_forgetting: give points of accuracy from 0 to 100")
    return options


def _files_by_class(form: FormData) -> dict[str, list[UploadFile]]:
    """The files of each class: one class for all files, one for each file, or one before its files."""
    names: list[str] = []
    owned: list[tuple[int, UploadFile]] = []
    for key, value in form.multi_items():
        if key == "class" and isinstance(value, str):
            names.append(class_name(value))
        elif key == "files" and isinstance(value, UploadFile):
            owned.append((len(names) - 1, value))
    if not names:
        raise RefusedError(400, "class: give the name of the class in the field `class`")
    if not owned:
        raise RefusedError(400, "files: give one or more image files in the field `files`")
    if len(names) == 1:
        owned = [(0, file) for _, file in owned]
    elif len(names) == len(owned) and all(number == len(names) - 1 for number, _ in owned):
        owned = list(enumerate(file for _, file in owned))
    found: dict[str, list[UploadFile]] = {name: [] for name in names}
    for number, file in owned:
        if number < 0:
            raise RefusedError(400, f"files: {file.filename} comes before the first class")
        found[names[number]].append(file)
    folded: dict[str, str] = {}
    for name, own in found.items():
        if not own:
            raise RefusedError(400, f"class: no files follow {name!r}. Put the files of each class after its name")
        if folded.setdefault(name.casefold(), name) != name:
            raise RefusedError(400, f"class: {name!r} and {folded[name.casefold()]!r} differ only in case")
    return found


async def lessons(request: Request) -> Response:
    """All lessons."""
    return _json(list(_service(request).queue.lessons()))


async def lesson(request: Request) -> Response:
    """One lesson."""
    return _json(_service(request).queue.lesson(request.path_params["lesson_id"]))


async def remove_lesson(request: Request) -> Response:
    """Take a lesson out of the queue or off the list."""
    _service(request).queue.remove(request.path_params["lesson_id"])
    return Response(status_code=204)


async def classes(request: Request) -> Response:
    """The classes of the current version."""
    contents = _service(request).contents
    pictures = request.query_params.get("pictures", "").lower() in {"1", "true", "yes"}
    return _json(list(await run_in_threadpool(contents.classes, pictures=pictures)))


async def versions(request: Request) -> Response:
    """All versions."""
    return _json(list(await run_in_threadpool(_service(request).contents.versions)))


async def rollback(request: Request) -> Response:
    """Make another version current."""
    wanted = await _values(request, RollbackRequest)
    service = _service(request)
    before, now = await _change(service, lambda: go_back(service.model, wanted.to))
    return _json(RollbackAnswer(before=before, current=now))


async def rename(request: Request) -> Response:
    """Give a class another name."""
    wanted = await _values(request, RenameRequest)
    service, name = _service(request), class_name(wanted.to)
    version = await _change(service, lambda: give_name(service.model, wanted.name, name))
    return _json(NewVersion(version=version))


async def remove(request: Request) -> Response:
    """Remove a class."""
    wanted = await _values(request, RemoveRequest)
    service = _service(request)
    removed = await _change(service, lambda: remove_class(service.model, wanted.name))
    return _json(NewVersion(version=removed.version))


async def _change(service: Service, change: Callable[[], Result]) -> Result:
    """Change the model, unless a lesson is running."""
    if service.queue.is_running:
        raise RefusedError(409, "a lesson is being learned. Wait until it is done, or cancel it")
    service.check_has_model()
    async with service.queue.changing:
        return await run_in_threadpool(change)


async def _values(request: Request, kind: type[Values]) -> Values:
    body = await read_body(request)
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise RefusedError(400, _reason(error)) from None


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else f"the body is not valid JSON: {first['msg']}"


async def events(request: Request) -> Response:
    """The lessons and the current version, whenever they change."""
    service = _service(request)
    if service.news.is_full:
        raise RefusedError(429, "too many pages are open. Close some")

    async def stream() -> AsyncIterator[str]:
        with service.news.listening() as news:
            while True:
                yield f"event: state\ndata: {json.dumps(service.state())}\n\n"
                await asyncio.sleep(SECONDS_BETWEEN_NEWS)
                while not await news.wait(SECONDS_BETWEEN_SIGNS):
                    yield ": still here\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


async def metrics_text(request: Request) -> Response:
    """Counts and times."""
    service, own = _service(request), request.scope["metrics"]
    return Response(own.text(service.gauges(), service.counts()), media_type=metrics.MEDIA_TYPE)
