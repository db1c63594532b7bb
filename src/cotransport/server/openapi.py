"""The API as an OpenAPI document, generated from the types of its requests and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cotransport.server.answers import (
    Failure,
    Health,
    ImageAnswer,
    KnownClass,
    Lesson,
    NewVersion,
    RemoveRequest,
    RenameRequest,
    RollbackAnswer,
    RollbackRequest,
    TeachAnswer,
    Version,
)
from cotransport.version import __version__

FILES = {"type": "array", "items": {"type": "string", "format": "binary"}, "description": "Image files."}
_CLASS = "A class name: one for all files, one for each file in the same order, or one before the files of each class."
_EXTEND = "`extend` adds the files to classes that are known already; `refuse`, the default, refuses such classes."
_FORGETTING = (
    "Points of accuracy that the known classes may lose. If they lose more, and not by chance, the lesson is refused."
)


@dataclass(frozen=True)
class Operation:
    """An operation of the API."""

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | str | None = None
    """Its type, a media type, or None if the answer is empty."""
    is_list: bool = False
    status: int = 200
    body: type[BaseModel] | None = None
    form: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Fields of a form. Those up to and including `files` are required."""
    query: tuple[tuple[str, str, str], ...] = ()
    """Names, types and meanings."""
    failures: tuple[int, ...] = ()
    is_public: bool = False

    @property
    def all_failures(self) -> tuple[int, ...]:
        """The statuses of its failures, including those that every operation may have."""
        return self.failures if self.is_public else tuple(sorted((401, 403, *self.failures)))


OPERATIONS = (
    Operation(
        "post",
        "/api/predict",
        "Predict the class of each image. The header Cotransport-Version names the version that answered, and "
        "Cotransport-Threshold, if there is one, the lowest probability of an answer that is not unknown.",
        ImageAnswer,
        is_list=True,
        form=(("files", FILES),),
        query=(("top", "integer", "The largest number of classes per image, most likely first; 10 by default."),),
        failures=(400, 408, 409, 413, 415, 429),
    ),
    Operation(
        "post",
        "/api/teach",
        "Queue a lesson that teaches one or more classes.",
        TeachAnswer,
        status=202,
        form=(
            ("class", {"type": "array", "items": {"type": "string"}, "description": _CLASS}),
            ("files", FILES),
            ("known_classes", {"type": "string", "enum": ["refuse", "extend"], "description": _EXTEND}),
            ("max_forgetting", {"type": "number", "minimum": 0, "maximum": 100, "description": _FORGETTING}),
        ),
        failures=(400, 408, 409, 413, 415, 429),
    ),
    Operation("get", "/api/lessons", "All lessons, in the order of their requests.", Lesson, is_list=True),
    Operation("get", "/api/lessons/{lesson_id}", "A lesson: its state, progress and result.", Lesson, failures=(404,)),
    Operation(
        "delete",
        "/api/lessons/{lesson_id}",
        "Cancel a lesson that is queued or running, or take an ended one off the list. What it has taught stays.",
        status=204,
        failures=(404,),
    ),
    Operation(
        "get",
        "/api/classes",
        "The classes of the current version, in order of arrival.",
        KnownClass,
        is_list=True,
        query=(("pictures", "boolean", "Whether to add thumbnails of images that the model keeps."),),
    ),
    Operation("get", "/api/versions", "All versions, oldest first.", Version, is_list=True),
    Operation(
        "post",
        "/api/rollback",
        "Make another version current. No version is removed.",
        RollbackAnswer,
        body=RollbackRequest,
        failures=(400, 408, 409, 413),
    ),
    Operation(
        "post",
        "/api/rename",
        "Give a class another name, in a new version. Nothing is trained.",
        NewVersion,
        body=RenameRequest,
        failures=(400, 408, 409, 413),
    ),
    Operation(
        "post",
        "/api/remove",
        "Remove a class, in a new version. Nothing is trained.",
        NewVersion,
        body=RemoveRequest,
        failures=(400, 408, 409, 413),
    ),
    Operation(
        "get",
        "/api/events",
        "Server-sent events: the current version and all lessons, whenever they change.",
        "text/event-stream",
        failures=(429,),
    ),
    Operation("get", "/metrics", "Counts and times in the text format of Prometheus.", "text/plain"),
    Operation("get", "/health", "Whether the server is up. Needs no token.", Health, is_public=True),
)
MEANINGS = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site, or names a wrong host.",
    404: "There is no lesson with this id.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state of the model.",
    413: "Too many bytes, files or pixels.",
    415: "The body has the wrong content type.",
    429: "Too many requests, uploads or lessons at once.",
}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    types: list[type[BaseModel]] = [Failure]
    for one in OPERATIONS:
        types += [kind for kind in (one.answer, one.body) if isinstance(kind, type) and kind not in types]
    _, schemas = models_json_schema(
        [(kind, "serialization") for kind in types], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "cotransport", "version": __version__, "description": "Teach and query an image classifier."},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation) -> dict[str, Any]:
    values: dict[str, Any] = {
        "summary": one.summary,
        "operationId": f"{one.method}{one.path.replace('/', '_').translate(str.maketrans('', '', '{}'))}",
        "responses": {str(one.status): _answer(one)}
        | {str(status): {"description": MEANINGS[status], "content": _content(Failure)} for status in one.all_failures},
    }
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": {"type": kind}, "description": meaning}
        for name, kind, meaning in one.query
    ]
    if "{lesson_id}" in one.path:
        parameters.append({"name": "lesson_id", "in": "path", "required": True, "schema": {"type": "string"}})
    if parameters:
        values["parameters"] = parameters
    if one.body is not None:
        values["requestBody"] = {"content": _content(one.body)}
    if one.form:
        names = [name for name, _ in one.form]
        schema = {"type": "object", "properties": dict(one.form), "required": names[: names.index("files") + 1]}
        values["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    if one.is_public:
        values["security"] = []
    return values


def _answer(one: Operation) -> dict[str, Any]:
    if one.answer is None:
        return {"description": "Done."}
    if isinstance(one.answer, str):
        return {"description": "Text.", "content": {one.answer: {"schema": {"type": "string"}}}}
    return {"description": (one.answer.__doc__ or "").strip(), "content": _content(one.answer, is_list=one.is_list)}


def _content(kind: type[BaseModel], *, is_list: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"application/json": {"schema": {"type": "array", "items": reference} if is_list else reference}}
