"""The JSON Schema of the configuration, for editors and for messages about faults."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dagsim.config.bundled import WORKLOADS
from dagsim.sections import field_texts


def schema_of(config: type[BaseModel], *, described: bool) -> dict[str, Any]:
    """Return the JSON Schema of the class ``Config``. If ``described`` is True, the keys of
    dataclasses also have descriptions, which are read from the source code.
    """
    schema: dict[str, Any] = _any_of(config.model_json_schema(schema_generator=_described(dataclasses=described)))
    for kind in ("Synthetic", "Sessions"):
        schema["$defs"][kind]["properties"]["preset"] = {
            "enum": list(WORKLOADS),
            "description": "The preset that the other keys change (``dagsim list workloads``).",
        }
    schema["$defs"]["Sessions"]["required"].remove("kinds")  # optional, because a preset provides them
    schema["properties"]["workload"]["anyOf"].append({"type": "string"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _described(*, dataclasses: bool) -> Any:
    """Return a generator for JSON Schemas that describes the keys of sections with the strings
    below their fields. With ``dataclasses``, it also describes the fields of dataclasses.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Described(GenerateJsonSchema):
        def model_schema(self, schema: Any) -> dict[str, Any]:
            described = super().model_schema(schema)
            for name, text in field_texts(schema["cls"]).items():
                if name in described.get("properties", {}):
                    described["properties"][name].setdefault("description", text)
            return described

        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            described = super().dataclass_schema(schema)
            if not dataclasses:
                return described
            keys = described.get("properties", {})
            for name, text in field_texts(schema["cls"]).items():
                if name in keys:
                    keys[name].setdefault("description", text)
            if "const" in (kind := keys.get("kind", {})):
                kind.setdefault("description", f"Set this to ``{kind['const']}`` to use the settings in this section.")
            return described

    return Described


def _any_of(schema: Any) -> Any:
    """Replace ``oneOf`` with ``anyOf`` in a schema, because several branches may match if ``kind``
    is left out. Remove private fields, which no configuration can set.
    """
    match schema:
        case dict():
            public = {key: part for key, part in schema.items() if not key.startswith("_")}
            return {"anyOf" if key == "oneOf" else key: _any_of(part) for key, part in public.items()}
        case list():
            return [_any_of(part) for part in schema]
    return schema
