"""Responses of the server: a list of runs, the page for one or several runs, and changes to runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import anyio
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from dagsim.errors import DagsimError, InputError
from dagsim.families.web.charts import element
from dagsim.families.web.document import content_policy_of, document, page, sealed, static
from dagsim.families.web.folder_pages import FolderStamp, ListedFolder, Results
from dagsim.families.web.server import Asgi, Guard

_EVERY_S = 1.0
"""Seconds between two checks of the folders while a client listens for changes."""
_STEP_S = 0.2
"""Seconds until a listener notices that the server is stopping."""
_ALIVE_S = 15.0
"""Longest silence in seconds, after which a comment is sent, which reveals whether the browser has
been closed."""
_KEPT = 8
"""Maximum number of cached pages."""
_MOST_COMPARED = 20


_REQUEST_S = 5.0
"""Seconds until an idle connection is closed: one without a complete request, or from which nothing
is read. It can take twice as long."""


class Connection(H11Protocol):
    """An HTTP connection that drops slow clients. This is needed because uvicorn itself limits only
    the pause after a response."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen: object = self.cycle  # None until the first request
        self._unread = 0
        self.loop.call_later(_REQUEST_S, self._look)

    def _look(self) -> None:
        """Close the connection if no data was transferred since the previous check."""
        if self.transport.is_closing():
            return
        waiting, unread = self.cycle is None or self.cycle.response_complete, self.transport.get_write_buffer_size()
        if (waiting and self._seen is self.cycle) or (unread and unread == self._unread):
            self.transport.abort()
            return
        self._seen, self._unread = (self.cycle if waiting else self), unread
        self.loop.call_later(_REQUEST_S, self._look)


def application(results: Results, bound_to: str, stopping: Callable[[], bool] = lambda: False) -> Asgi:
    """Return the whole server as an ASGI application. It releases its listeners when ``stopping``
    returns True."""
    pages = _Pages(results)

    def list_(_: Request) -> Response:
        return _html(_list_page(results))

    def runs(_: Request) -> Response:
        return JSONResponse({"runs": [state.to_dict() for state in results.states()]})

    def run(request: Request) -> Response:
        return _response(lambda: pages.of([request.path_params["id"]]))

    def compare(request: Request) -> Response:
        return _response(lambda: pages.of(request.query_params.getlist("run")))

    async def events(request: Request) -> Response:
        asked = request.query_params.getlist("run")
        return StreamingResponse(_events(results, asked, stopping), media_type="text/event-stream")

    def queue(request: Request) -> Response:
        return _queue_json(results, request.query_params.get("job"), request.query_params.get("user"))

    def prometheus(_: Request) -> Response:
        text = None if results.snapshots is None else results.snapshots.as_metrics()
        if text is None:
            return PlainTextResponse("no queue is watched: dagsim serve --watch\n", 404)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [
        Route("/queue.json", queue),
        Route("/metrics", prometheus),
        Route("/", list_),
        Route("/runs.json", runs),
        Route("/runs/{id:path}", run),
        Route("/compare", compare),
        Route("/events", events),
    ]
    return Guard(Starlette(routes=routes), bound_to)


def _queue_json(results: Results, job: str | None, user: str | None) -> Response:
    """Return the forecasts for the queue as JSON for portals: for all jobs, for one job, or for the
    jobs of one user.
    """
    snapshots = results.snapshots
    if snapshots is None:
        return JSONResponse({"error": "no queue is served: dagsim serve --config site.yaml"}, 404)
    latest = snapshots.latest
    rows = [row for row in latest.rows if job in (None, row.job) and user in (None, row.user)]
    if job is not None and not rows:
        return JSONResponse(
            {"error": f"job {job} has no forecast: it is not waiting, or its start cannot be forecast"}, 404
        )
    facts: dict[str, object] = {
        "t": latest.t or None,
        "error": snapshots.problem or None,
        "jobs": [row._asdict() for row in rows],
    }
    if snapshots.journal is not None:
        share, count = snapshots.journal.coverage()
        facts |= {"coverage_90": share if count else None, "scored": count, "skipped": snapshots.journal.skipped}
        figures = snapshots.journal.figures()
        facts["best_baseline"] = snapshots.journal.best_baseline
        facts |= {
            name: {part: {of: own.to_dict() for of, own in methods.items()} for part, methods in parts.items()}
            for name, parts in figures.items()
        }
    return JSONResponse(facts)


class _Pages:
    """Cache of pages. A page is rebuilt when one of its runs changes."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._made: OrderedDict[tuple[str, ...], tuple[tuple[FolderStamp, ...], str]] = OrderedDict()
        self._guard = threading.Lock()  # building a page takes a full core, so build one at a time

    def of(self, ids: Sequence[str]) -> str:
        """Return the page that shows these runs.

        Raises:
            InputError: There is no such run, or they cannot be shown on one page.
            RunFolderError: A run folder cannot be read.
        """
        key = tuple(dict.fromkeys(ids))
        if not 0 < len(key) <= _MOST_COMPARED:
            raise InputError(f"a page can show 1 to {_MOST_COMPARED} runs, got {len(key)}")
        snapshots = self._results.snapshots
        if snapshots is not None and snapshots.id in key:
            if len(key) > 1:
                raise InputError("the queue cannot share a page with runs")
            page: str = snapshots.latest.page
            return page or _waiting([self._results.state(snapshots.id)])
        stamps = tuple(self._results.stamp(id_) for id_ in key)
        with self._guard:
            cached = self._made.get(key)
            if cached is not None and cached[0] == stamps:
                self._made.move_to_end(key)
                return cached[1]
            text = self._make(key)
            self._made[key] = stamps, text
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
            return text

    def _make(self, ids: tuple[str, ...]) -> str:
        folders = [self._results.folder(id_) for id_ in ids]
        states = [self._results.state(id_) for id_ in ids]
        if all(state.done == 0 for state in states):
            return _waiting(states)
        return page(folders, live=ids)


def _waiting(states: Sequence[ListedFolder]) -> str:
    """Return a page for runs without a finished result."""
    title = f"{states[0].workload}: dagsim report"
    why = states[0].note or "Nothing is finished yet."
    body = f"<header>{element('h1', title)}{element('p', why, class_='verdict')}</header>"
    return document(title, body, "", live=[state.id for state in states], waiting=True)


def _response(make: Callable[[], str]) -> Response:
    """Return the page that ``make`` builds, or the reason in plain text if it cannot be built."""
    try:
        return _html(make())
    except InputError as error:
        return PlainTextResponse(f"{error}\n", 404)
    except DagsimError as error:
        return PlainTextResponse(f"{error}\n", 500)


def _html(text: str) -> Response:
    """Return a page, and repeat its Content-Security-Policy as a header, because only a header can
    forbid frames."""
    return HTMLResponse(text, headers={"Content-Security-Policy": f"{content_policy_of(text)}; frame-ancestors 'none'"})


def _list_page(results: Results) -> str:
    states = json.dumps([state.to_dict() for state in results.states()])
    # Escape "<", so that text from a log cannot close the element that contains it.
    inert = states.replace("<", "\\u003c")
    where = results.root.resolve().name or str(results.root)
    body = "".join(
        [
            f"<header>{element('h1', f'{where}: runs')}</header><main>{static('list.html')}</main>",
            f'<script type="application/json" id="first">{inert}</script>',
        ]
    )
    return sealed(f"{where}: dagsim", body, ("page.css", "list.css"), ("list.js",), connects=True)


async def _events(results: Results, asked: Sequence[str], stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield server-sent events: first all runs (or the requested ones), then those that change or
    disappear."""
    # A requested run that has already disappeared is also reported.
    sent: Mapping[str, ListedFolder | None] = dict.fromkeys(asked)
    silent_s, is_first = 0.0, True
    while not stopping():
        states = {state.id: state for state in await run_sync(results.states) if not asked or state.id in asked}
        changed = [state.to_dict() for id_, state in states.items() if sent.get(id_) != state]
        gone = [id_ for id_ in sent if id_ not in states]
        sent = states
        if changed or gone or is_first:
            is_first, silent_s = False, 0.0
            yield f"data: {json.dumps({'runs': changed, 'gone': gone})}\n\n"
        elif silent_s >= _ALIVE_S:
            silent_s = 0.0
            yield ": still here\n\n"
        waited_s = 0.0
        while waited_s < _EVERY_S and not stopping():
            await anyio.sleep(_STEP_S)
            waited_s += _STEP_S
        silent_s += waited_s
