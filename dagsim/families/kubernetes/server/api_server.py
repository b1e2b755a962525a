"""The API server. It serves discovery, objects, watches and the subresources that schedulers write,
as JSON over HTTP.

It is an ASGI application, served by uvicorn on the loopback interface. It makes no decisions and
does not depend on time: the simulation writes to the store, and the program that runs next to the
simulation reads, watches and writes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

import yaml

from dagsim.families.kubernetes.server.api_resources import (
    NODES,
    PODS,
    ApiTarget,
    locate,
    resource,
)
from dagsim.families.kubernetes.server.object_store import ObjectChange, ObjectStore, Refusal, Resource, stamp
from dagsim.families.kubernetes.server.patches import Manifest, field, matcher, merged

ServerMessage: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[ServerMessage]]
Send: TypeAlias = Callable[[ServerMessage], Awaitable[None]]
_ASIDE = ("events", "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews")
"""Kinds for which a request is not a sign of a decision."""
_MOST_BYTES = 3 << 20
"""Size of the largest body that is read, as in the real API server."""
_MALFORMED = (TypeError, AttributeError, LookupError, ValueError, OverflowError)
"""Errors from a body whose parts do not have the types that the API prescribes."""


class ApiServer:
    """Serves a store. It records which requests are in progress. Callers can therefore see whether
    the clients are idle.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()
        """Requests by method and path; paths that are not served end in ``(404)``."""
        self.under_way = 0
        """Requests that may change something, and have no answer yet."""
        self.activity = asyncio.Event()
        """Set when a request ends, or an object changes."""
        self.watched: Counter[Resource] = Counter()
        """Open watches by kind."""
        self._watches: dict[Resource, set[asyncio.Event]] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[Any] = set()
        store.listeners.append(self._changed)

    async def start(self, port: int = 0) -> str:
        """Listen on the loopback interface, on the given port or on any free one, and return the
        URL."""
        from uvicorn import Config
        from uvicorn.protocols.http.h11_impl import H11Protocol
        from uvicorn.server import ServerState

        settings = Config(self, http="h11", lifespan="off", log_config=None, access_log=False, server_header=False,
                          timeout_keep_alive=3600)  # fmt: skip
        settings.load()
        state = ServerState()
        self._connections = state.connections
        listening = socket.create_server(("127.0.0.1", port), backlog=256)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: H11Protocol(settings, state, {}), sock=listening
        )
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    def stop(self) -> None:
        """Stop listening, and close the connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.transport.abort()

    def _changed(self, change: ObjectChange) -> None:
        self.activity.set()
        for waiting in self._watches.get(change.resource, ()):
            waiting.set()

    async def __call__(self, scope: ServerMessage, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        path, method = unquote(scope["path"]), scope["method"]
        found = locate(path)
        target = found if isinstance(found, ApiTarget) else None
        watching = target is not None and method == "GET" and query.get("watch") in ("1", "true")
        self._note(method, path, found)
        counts = target is not None and not watching and target.resource.plural not in _ASIDE
        self.under_way += counts
        try:
            if found is None:
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            if target is None:
                await _answer(send, 200, found)
            elif watching:
                await _Watch(self, target, query).serve(receive, send)
            else:
                headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
                body = await _body(receive, headers)
                try:
                    code, content = self._request(method, target, query, headers, body)
                except _MALFORMED as error:
                    about = f"{method} {path}: the body does not have the form of {target.resource.kind}"
                    raise Refusal(400, "BadRequest", f"{about}: {error}") from None
                await _answer(send, code, _versioned(content, target))
        except Refusal as refusal:
            await _answer(send, refusal.code, refusal.status)
        finally:
            self.under_way -= counts
            if counts:
                self.activity.set()

    def _note(self, method: str, path: str, found: object) -> None:
        if isinstance(found, ApiTarget):
            path = "/".join(filter(None, (found.served.name, found.resource.plural, found.part)))
        self.asked[f"{method} {path}{'' if found is not None else ' (404)'}"] += 1

    def _request(
        self, method: str, target: ApiTarget, query: Mapping[str, str], headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        store, kind, source = self.store, target.resource, headers.get("user-agent") or "client"
        key = (target.namespace, target.name)
        if method == "POST" and (kind.kind == "Binding" or target.part == "binding"):
            return 201, self._bind(target, body, source)
        if kind.kind.endswith("Review"):
            allowed = {"allowed": True, "authenticated": True, "user": {"username": "dagsim"}}
            return 201, {**body, "status": allowed}
        if kind.kind == "Event" and method in ("POST", "PATCH", "PUT"):
            # Accept events but do not store them, because only people read them.
            return 201 if method == "POST" else 200, body
        match method:
            case "POST" if target.part == "eviction":
                return 201, store.delete(kind, key, body.get("deleteOptions"), source)
            case "POST" if not target.name:
                return 201, store.create(kind, admitted(kind, body, store), target.namespace, source)
            case "GET" if target.name:
                return 200, store.get(kind, key)
            case "GET":
                return 200, self._list(target, query)
            case "PUT":
                return 200, store.replace(kind, key, body, target.part, source)
            case "PATCH":
                form, owner = headers.get("content-type", ""), query.get("fieldManager", "")
                return 200, store.patch(kind, key, body, form, target.part, source, owner)
            case "DELETE" if target.name:
                return 200, self._delete(target, query, body, source)
            case "DELETE":
                listed = self._list(target, query)
                for one in listed["items"]:
                    store.delete(kind, (one["metadata"].get("namespace", ""), one["metadata"]["name"]), body, source)
                return 200, listed
        raise Refusal(405, "MethodNotAllowed", f"{method} is not served here")

    def _delete(self, target: ApiTarget, query: Mapping[str, str], options: Manifest, source: str) -> Manifest:
        if (grace := query.get("gracePeriodSeconds", "")).isdigit():
            options = {**options, "gracePeriodSeconds": int(grace)}
        gone = self.store.delete(target.resource, (target.namespace, target.name), options, source)
        if target.resource == PODS or "deletionTimestamp" in gone["metadata"]:
            return gone
        about = {"name": target.name, "kind": target.resource.plural, "uid": gone["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}

    def _bind(self, target: ApiTarget, body: Manifest, source: str) -> Manifest:
        """Put a pod on a node. The pod runs immediately."""
        stated = body.get("metadata") or {}
        key = (target.namespace, target.name or stated.get("name", ""))
        node, store = field(body, "target.name"), self.store
        pod = store.get(PODS, key)
        if stated.get("uid") not in (None, "", pod["metadata"]["uid"]):
            raise Refusal(409, "Conflict", f'pod "{key[1]}" does not have the UID in the request')
        if "deletionTimestamp" in pod["metadata"] or field(pod, "spec.nodeName"):
            raise Refusal(409, "Conflict", f'pod "{key[1]}" is being deleted or has a node')
        if not node:
            raise Refusal(422, "Invalid", "target.name: a node is required")
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(store.now_s)}
        status = {"phase": "Running", "startTime": stamp(store.now_s), "nominatedNodeName": None}
        new = merged(pod, {"spec": {"nodeName": node}, "status": status}, strategic=False)
        rest = [one for one in field(pod, "status.conditions") or () if one.get("type") != "PodScheduled"]
        new["status"]["conditions"] = [*rest, bound]
        new["metadata"] = merged(pod["metadata"], {"annotations": stated.get("annotations") or {}}, strategic=False)
        store.assign(PODS, key, new, source)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _list(self, target: ApiTarget, query: Mapping[str, str]) -> Manifest:
        chosen = matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        listed = [one for one in self.store.listed(target.resource, target.namespace) if chosen(one)]
        metadata: Manifest = {"resourceVersion": str(self.store.version)}
        if token := query.get("continue"):
            try:
                after = tuple(json.loads(base64.urlsafe_b64decode(token)))
            except ValueError:
                raise Refusal(410, "Expired", "the continue token cannot be read") from None
            listed = [one for one in listed if (one["metadata"].get("namespace", ""), one["metadata"]["name"]) > after]
        limit = int(query["limit"]) if query.get("limit", "").isdigit() else 0
        if 0 < limit < len(listed) and query.get("resourceVersion") != "0":
            metadata["remainingItemCount"] = len(listed) - limit
            del listed[limit:]
            last = listed[-1]["metadata"]
            token = json.dumps([last.get("namespace", ""), last["name"]])
            metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
        return {"kind": f"{target.resource.kind}List", "metadata": metadata, "items": listed}


class _Watch:
    """A watch. It may begin with a list (a streaming list)."""

    def __init__(self, api: ApiServer, target: ApiTarget, query: Mapping[str, str]) -> None:
        self._api, self._target = api, target
        self._chosen = matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        self._initial = query.get("sendInitialEvents")
        self._bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        self._since = query.get("resourceVersion") or "0"
        self._seconds = float(query["timeoutSeconds"]) if query.get("timeoutSeconds", "").isdigit() else 3600.0
        self._head = {"apiVersion": target.served.name, "kind": target.resource.kind}

    async def serve(self, receive: Receive, send: Send) -> None:
        """Send changes until the client disconnects, or until the duration that it requested has
        passed."""
        store, kind = self._api.store, self._target.resource
        if not self._since.isdigit():
            raise Refusal(400, "BadRequest", f"the resource version {self._since!r} is not a number")
        changed = asyncio.Event()
        lines, position = self._beginning(store)
        waiting = self._api._watches.setdefault(kind, set())
        waiting.add(changed)
        self._api.watched[kind] += 1
        gone = asyncio.ensure_future(_disconnected(receive, changed))
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _JSON})
            await send({"type": "http.response.body", "body": b"".join(lines), "more_body": True})
            self._api.activity.set()
            while not gone.done():
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                try:
                    await asyncio.wait_for(changed.wait(), min(left, 30.0))
                except TimeoutError:
                    lines = [self._bookmark(store)] if self._bookmarks else []
                else:
                    changed.clear()
                    changes = store.changes(kind, position)
                    lines = [line for change in changes if (line := self._line(change))]
                position = store.version
                if lines:
                    await send({"type": "http.response.body", "body": b"".join(lines), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            waiting.discard(changed)
            self._api.watched[kind] -= 1

    def _beginning(self, store: ObjectStore) -> tuple[list[bytes], int]:
        """Return the lines that come before the first change, and the version to which they
        belong."""
        kind, since = self._target.resource, int(self._since)
        if self._initial == "true" or (since == 0 and self._initial is None):
            lines = [
                self._event("ADDED", one) for one in store.listed(kind, self._target.namespace) if self._chosen(one)
            ]
            if self._initial == "true" and self._bookmarks:
                lines.append(self._bookmark(store, {"k8s.io/initial-events-end": "true"}))
            return lines, store.version
        if since == 0:
            return [], store.version
        return [line for change in store.changes(kind, since) if (line := self._line(change))], store.version

    def _line(self, change: ObjectChange) -> bytes:
        """Return a change in the form in which this watch reports it. An object that no longer
        matches is reported as deleted.
        """
        if self._target.namespace and change.object["metadata"].get("namespace") != self._target.namespace:
            return b""
        now = change.event != "DELETED" and self._chosen(change.object)
        before = change.old is not None and self._chosen(change.old)
        if now:
            return self._event("MODIFIED" if before else "ADDED", change.object)
        return self._event("DELETED", change.object) if before else b""

    def _event(self, event: str, object: Manifest) -> bytes:
        return json.dumps({"type": event, "object": {**object, **self._head}}, separators=(",", ":")).encode() + b"\n"

    def _bookmark(self, store: ObjectStore, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: Manifest = {"resourceVersion": str(store.version), "creationTimestamp": None}
        return self._event("BOOKMARK", {"metadata": metadata | ({"annotations": annotations} if annotations else {})})


async def _disconnected(receive: Receive, changed: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    changed.set()


_JSON = [(b"content-type", b"application/json")]


async def _answer(send: Send, code: int, content: Any) -> None:
    text = isinstance(content, str)
    body = content.encode() if text else json.dumps(content, separators=(",", ":")).encode()
    headers = [
        (b"content-type", b"text/plain" if text else b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    with suppress(OSError):
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _versioned(content: Any, target: ApiTarget) -> Any:
    """Convert a response to the API version that was requested."""
    if not isinstance(content, dict) or content.get("kind") == "Status":
        return content
    head = {"apiVersion": target.served.name, "kind": content.get("kind") or target.resource.kind}
    if "items" in content:
        of_item = {**head, "kind": target.resource.kind}
        return {**content, **head, "items": [{**one, **of_item} for one in content["items"]]}
    return {**content, **(head if target.part in ("", "status") else {})}


async def _body(receive: Receive, headers: Mapping[str, str]) -> Any:
    text, form = bytearray(), headers.get("content-type", "")
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "BadRequest", "the request was cut off")
        text += message.get("body", b"")
        if len(text) > _MOST_BYTES:
            raise Refusal(413, "RequestEntityTooLarge", f"the body has more than {_MOST_BYTES} bytes")
        if not message.get("more_body"):
            break
    if "protobuf" in form or "cbor" in form:
        raise Refusal(
            415, "UnsupportedMediaType", f"{form}: this server accepts only JSON; set clientConnection.contentType"
        )
    try:
        content = _from_yaml(bytes(text)) if "yaml" in form else json.loads(text or b"{}")
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Refusal(400, "BadRequest", f"the body cannot be read: {error}") from None
    if not isinstance(content, list if "json-patch" in form else dict):
        raise Refusal(400, "BadRequest", f"the body is not {'a list' if 'json-patch' in form else 'an object'}")
    return content


def _from_yaml(text: bytes) -> Any:
    """Read YAML, but reject aliases, because with aliases a short text can become a huge object."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
        raise ValueError("YAML aliases are not allowed")
    return yaml.safe_load(text)


def admitted(kind: Resource, object: Manifest, store: ObjectStore) -> Manifest:
    """Return a new object with the defaults on which schedulers rely. The real API server fills
    them in as well."""
    spec, status = object.get("spec") or {}, object.get("status") or {}
    if kind == PODS:
        spec = {
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": _priority(spec, store),
            **spec,
        }
        for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
            if limits := field(container, "resources.limits"):
                requests = field(container, "resources.requests") or {}
                container["resources"] = {**container["resources"], "requests": {**limits, **requests}}
        return {**object, "spec": spec, "status": {"phase": "Pending", **status}}
    if kind == NODES:
        amounts = status.get("allocatable") or status.get("capacity") or {}
        ready = [{"type": "Ready", "status": "True", "reason": "Simulated"}]
        return {
            **object,
            "spec": spec,
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready, **status},
        }
    if kind.kind == "Namespace":
        name = object.get("metadata", {}).get("name", "")
        labels = {"kubernetes.io/metadata.name": name, **(field(object, "metadata.labels") or {})}
        metadata = {**object.get("metadata", {}), "labels": labels}
        return {**object, "metadata": metadata, "status": {"phase": "Active"}}
    return object


def _priority(spec: Mapping[str, Any], store: ObjectStore) -> int:
    classes = store.objects[resource("priorityclasses", "scheduling.k8s.io")]
    name = spec.get("priorityClassName")
    if not name:
        chosen = next((one for one in classes.values() if one.get("globalDefault")), {})
    elif (chosen := classes.get(("", name), {})) == {} and name not in _BUILT_IN:
        raise Refusal(403, "Forbidden", f"no PriorityClass with name {name} was found")
    return int(chosen.get("value", _BUILT_IN.get(name or "", 0)))


_BUILT_IN = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
