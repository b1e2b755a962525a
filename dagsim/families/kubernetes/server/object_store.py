"""The objects that the API serves, with their versions and the history on which watches are
based."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from dagsim.families.kubernetes.server.patches import InvalidPatch, Manifest, field, merged, stepwise, without_dropped

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""The date that stands for second 0 of a simulation. It is in the past because programs assume that
a pod that has not started will start at the current time of the real clock.
"""
_SPACE = UUID(int=0x646167)
_MOST_CHANGES = 40_000
"""Number of changes that are kept for each kind. A watch that requests older changes has to list
again."""

ObjectKey: TypeAlias = tuple[str, str]
"""Namespace (empty for objects of the cluster) and name."""


class Refusal(Exception):
    """A response that reports a failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    @property
    def status(self) -> Manifest:
        """Return the response in the form that clients expect."""
        about = {"status": "Failure", "message": str(self), "reason": self.reason, "code": self.code}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **about}


class Resource(NamedTuple):
    """A kind of object, the same in all versions of its group."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    short: str = ""
    subresources: tuple[str, ...] = ()


class ObjectChange(NamedTuple):
    """A change to an object. ``source`` is the name of the client, or an empty text if the
    simulation itself made the change."""

    version: int
    event: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``."""
    resource: Resource
    object: Manifest
    old: Manifest | None
    source: str


def stamp(now_s: float) -> str:
    """Return the simulated time in the notation of Kubernetes, in whole seconds."""
    return (EPOCH + timedelta(seconds=now_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(object: Mapping[str, Any]) -> ObjectKey:
    """Return the namespace and the name of an object."""
    return object["metadata"].get("namespace", ""), object["metadata"]["name"]


def is_true(object: Mapping[str, Any], kind: str) -> bool:
    """Return True if the condition ``kind`` of the object is true."""
    return any(
        one.get("type") == kind and one.get("status") == "True" for one in field(object, "status.conditions") or ()
    )


class ObjectStore:
    """The objects of a simulated cluster. Objects are never changed in place: each change creates a
    new object.

    ``now_s`` is the simulated time. ``listeners`` are called with each ``ObjectChange``. With
    ``grace_s``, a running pod that a client deletes is only marked as terminating. The simulation
    removes it ``grace_s`` seconds later. Pods in ``held`` are always treated in this way.

    Raises:
        Refusal: A client's request cannot be carried out (in any operation).
    """

    def __init__(self) -> None:
        self.now_s, self.version, self.grace_s = 0.0, 1, 0.0
        self.held: set[ObjectKey] = set()
        self.objects: defaultdict[Resource, dict[ObjectKey, Manifest]] = defaultdict(dict)
        self.listeners: list[Callable[[ObjectChange], None]] = []
        self._changes: defaultdict[Resource, list[ObjectChange]] = defaultdict(list)
        self._forgotten: defaultdict[Resource, int] = defaultdict(int)
        self._applied: dict[tuple[Resource, ObjectKey, str], Manifest] = {}

    def changes(self, resource: Resource, since: int) -> list[ObjectChange]:
        """Return the changes to objects of a kind since a version."""
        if since < self._forgotten[resource] or since > self.version:
            raise Refusal(410, "Expired", f"too old or unknown resource version: {since}")
        listed = self._changes[resource]
        return listed[bisect_right(listed, since, key=lambda change: change.version) :]

    def get(self, resource: Resource, key: ObjectKey) -> Manifest:
        """Return an object."""
        try:
            return self.objects[resource][key]
        except KeyError:
            raise Refusal(404, "NotFound", f'{resource.plural} "{key[1]}" not found') from None

    def create(self, resource: Resource, object: Manifest, namespace: str = "", source: str = "") -> Manifest:
        """Add an object."""
        object = deepcopy(object)
        metadata = object.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.version:05}"
        if not metadata.get("name"):
            raise Refusal(422, "Invalid", "metadata.name or metadata.generateName is required")
        if resource.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace") or "default"
        key = key_of(object)
        if key in self.objects[resource]:
            raise Refusal(409, "AlreadyExists", f'{resource.plural} "{key[1]}" already exists')
        metadata["uid"] = str(uuid5(_SPACE, f"{resource.plural}/{key}/{self.version}"))
        metadata["creationTimestamp"], metadata["generation"] = stamp(self.now_s), 1
        return self._commit("ADDED", resource, object, None, source)

    def replace(
        self, resource: Resource, key: ObjectKey, object: Manifest, part: str = "", source: str = ""
    ) -> Manifest:
        """Replace an object, or only its status (if ``part`` is ``status``), or everything except
        its status."""
        old = self.get(resource, key)
        before, stated = old["metadata"], object.get("metadata") or {}
        for name in ("resourceVersion", "uid"):
            if stated.get(name) and stated[name] != before[name]:
                message = f'{resource.plural} "{key[1]}": {name} is {before[name]}, not {stated[name]}'
                raise Refusal(409, "Conflict", message)
        if part == "status":
            new = {**old, "status": object.get("status", {}), "metadata": dict(before)}
        else:
            kept = {"status": old["status"]} if "status" in resource.subresources and "status" in old else {}
            new = {**object, **kept, "metadata": {**stated, **{name: before[name] for name in _OWN if name in before}}}
        same = all(new.get(name) == old.get(name) for name in {*new, *old} - {"apiVersion", "kind"})
        if same:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = before.get("generation", 1) + 1
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._commit("DELETED", resource, new, old, source)
        return self._commit("MODIFIED", resource, new, old, source)

    def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        patch: Any,
        form: str,
        part: str = "",
        source: str = "",
        owner: str = "",
    ) -> Manifest:
        """Apply a patch of the media type ``form`` to an object. ``owner`` is the field manager of
        an apply request."""
        if "apply" in form:
            place = resource, key, f"{owner}/{part}"
            before, self._applied[place] = self._applied.get(place, {}), patch
            if key not in self.objects[resource]:
                patch = {**patch, "metadata": {**patch.get("metadata", {}), "name": key[1]}}
                return self.create(resource, merged({}, patch, strategic=True), key[0], source)
            kept = without_dropped(self.get(resource, key), before, patch)
            return self.replace(resource, key, merged(kept, patch, strategic=True), part, source)
        old = self.get(resource, key)
        if "json-patch" in form:
            try:
                return self.replace(resource, key, stepwise(deepcopy(old), patch), part, source)
            except InvalidPatch as error:
                raise Refusal(422, "Invalid", f'{resource.plural} "{key[1]}": {error}') from None
        new = merged(old, patch, strategic="strategic" in form)
        return self.replace(resource, key, new, part, source)

    def delete(
        self, resource: Resource, key: ObjectKey, options: Mapping[str, Any] | None = None, source: str = ""
    ) -> Manifest:
        """Remove an object. An object with finalizers, or a running pod with a grace period, is
        only marked as deleted."""
        old, options = self.get(resource, key), options or {}
        metadata = old["metadata"]
        for name, value in (options.get("preconditions") or {}).items():
            if metadata.get(name) != value:
                raise Refusal(409, "Conflict", f'{resource.plural} "{key[1]}": {name} is not {value}')
        new = {**old, "metadata": dict(metadata)}
        grace_s = self._grace_s(resource, old, options)
        if source and (grace_s or metadata.get("finalizers")):
            if "deletionTimestamp" in metadata:
                return old
            new["metadata"] |= {"deletionTimestamp": stamp(self.now_s + grace_s), "deletionGracePeriodSeconds": grace_s}
            return self._commit("MODIFIED", resource, new, old, source)
        return self._commit("DELETED", resource, new, old, source)

    def _grace_s(self, resource: Resource, old: Manifest, options: Mapping[str, Any]) -> int:
        if resource.plural != "pods" or not field(old, "spec.nodeName"):
            return 0
        asked = options.get("gracePeriodSeconds")
        if asked is None:
            asked = field(old, "spec.terminationGracePeriodSeconds")
        whole_s = ceil(min(30 if asked is None else asked, self.grace_s))
        return max(1, whole_s) if key_of(old) in self.held else whole_s

    def _commit(self, event: str, resource: Resource, new: Manifest, old: Manifest | None, source: str) -> Manifest:
        if source and event != "DELETED":
            _check_form(resource, new)
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        key = key_of(new)
        if event == "DELETED":
            del self.objects[resource][key]
        else:
            self.objects[resource][key] = new
        change = ObjectChange(self.version, event, resource, new, old, source)
        listed = self._changes[resource]
        listed.append(change)
        if len(listed) > _MOST_CHANGES:
            self._forgotten[resource] = listed[_MOST_CHANGES // 2 - 1].version
            del listed[: _MOST_CHANGES // 2]
        for listener in self.listeners:
            listener(change)
        return new

    def assign(self, resource: Resource, key: ObjectKey, object: Manifest, source: str = "") -> Manifest:
        """Replace an object as a whole, including its status."""
        return self._commit("MODIFIED", resource, object, self.get(resource, key), source)

    def listed(self, resource: Resource, namespace: str = "") -> Iterator[Manifest]:
        """Yield the objects of a kind, ordered by namespace and name."""
        objects = self.objects[resource]
        for key in sorted(objects):
            if not namespace or key[0] == namespace:
                yield objects[key]


def _check_form(resource: Resource, object: Manifest) -> None:
    """Check the parts of a client's object that the server and the simulation read.

    Raises:
        Refusal: A part has a different type than in the API.
    """
    metadata, spec, status = (object.get(name) or {} for name in ("metadata", "spec", "status"))
    texts = [("metadata.name", metadata.get("name", "")), ("metadata.namespace", metadata.get("namespace", ""))]
    for name in ("labels", "annotations"):
        texts += [(f"metadata.{name}", text) for pair in (metadata.get(name) or {}).items() for text in pair]
    texts += [("metadata.finalizers", one) for one in _listed(metadata, "metadata.finalizers")]
    conditions = _listed(status, "status.conditions")
    if resource.plural == "pods":
        texts.append(("spec.nodeName", spec.get("nodeName") or ""))
        conditions = [*conditions, *_listed(spec, "spec.containers"), *_listed(spec, "spec.initContainers")]
    wrong = [f"{where}: {text!r:.60} is not a text" for where, text in texts if not isinstance(text, str)]
    wrong += [f"{one!r:.60} is not an object" for one in (spec, status, *conditions) if not isinstance(one, dict)]
    if len(str(metadata.get("name"))) > _LONGEST_NAME:
        wrong.append(f"metadata.name has more than {_LONGEST_NAME} characters")
    if wrong:
        raise Refusal(422, "Invalid", f"{resource.kind}: {'; '.join(wrong[:3])}")


def _listed(part: Mapping[str, Any], where: str) -> list[Any]:
    listed = part.get(where.rpartition(".")[2]) or []
    if not isinstance(listed, list):
        raise Refusal(422, "Invalid", f"{where}: {listed!r:.60} is not a list")
    return listed


_LONGEST_NAME = 253
_OWN = (
    "name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
    "resourceVersion",
)  # fmt: skip
"""Parts of the metadata that the server alone writes."""
