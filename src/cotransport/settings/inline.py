"""Settings made of sections whose keys are written without the section's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from cotransport.settings.validation import Settings


class InlineSections(Settings):
    """Settings that take the keys of their sections directly: `rt_weight: 1`, not `retrospection: {rt_weight: 1}`.

    Keys that are not given keep the values of the section's default, which a subclass may change.
    """

    @classmethod
    def inline_sections(cls) -> dict[str, type[Settings]]:
        """The sections by field name."""
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Settings)}

    @model_validator(mode="before")
    @classmethod
    def _into_sections(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        nested: dict[str, Any] = dict(values)
        for name, kind in cls.inline_sections().items():
            given = {key: nested.pop(key) for key in kind.model_fields if key in nested}
            section = nested.get(name, cls.model_fields[name].default)
            if not isinstance(section, kind):  # one spelling only: two could contradict each other
                raise ValueError(f"{name}: not a setting. Write its keys directly: {', '.join(kind.model_fields)}")
            if given:
                nested[name] = {**section.model_dump(), **given}
        return nested

    @model_serializer(mode="wrap")
    def _without_sections(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialise(self)
        for name in self.inline_sections():
            values |= values.pop(name, {})  # it may be excluded
        return values
