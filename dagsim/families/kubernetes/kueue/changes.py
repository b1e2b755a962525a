"""Changes to the queues of a site, from a file of Kueue's objects (``dagsim whatif --alternative``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagsim.errors import InputError, TraceError
from dagsim.families.kubernetes.kueue.kueue_objects import KueueObjects
from dagsim.families.kubernetes.kueue.kueue_site import READ_KEYS, VERSIONS, manifests_in
from dagsim.families.kubernetes.kueue.manifests import KINDS, full_name, with_objects
from dagsim.model import QueueTree
from dagsim.spelling import nearest
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.source import Source

_GROUPS = ("kueue.x-k8s.io", "config.kueue.x-k8s.io")
_QUOTA_KEYS = ("name", "nominalQuota", "borrowingLimit", "lendingLimit")
_MOST_NAMED = 3


def changed_queues(queues: QueueTree | None, file: Path) -> tuple[QueueTree, tuple[str, ...]]:
    """Add the objects from a file (YAML or JSON) to the queues. Return the new queues, and notes
    about the file for the user. An added object replaces an existing object of the same name.

    Raises:
        TraceError: The file cannot be read, it contains no Kueue object or one that the API would
            reject, or a queue names a flavor that does not exist.
        InputError: The configuration has no Kueue objects, or the file changes none of them.
    """
    if queues is None or queues.kueue is None:
        raise InputError(f"{file}: the configuration has no Kueue objects (queues.kueue) that the file could change")
    before = queues.kueue
    try:
        manifests = list(manifests_in(Source(file)))
        notes = list(_notes(manifests))
        objects = with_objects(before, [one for one in manifests if text_in(one, "kind") in KINDS])
        _check_flavors(before, objects)
    except TraceError as error:
        text = str(error)
        raise TraceError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    if objects == before:
        raise InputError(f"{file}: the configuration already contains the same objects, so the file changes nothing")
    return replace(queues, kueue=objects), (*notes, *_additions(before, objects))


def _notes(manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check the objects in a file, and describe those of their parts that have no effect.

    Raises:
        TraceError: An object has no name or no known group, or occurs twice.
    """
    there: set[tuple[str, str]] = set()
    ignored: Counter[str] = Counter()
    for manifest in manifests:
        kind, name, version = text_in(manifest, "kind"), full_name(manifest), text_in(manifest, "apiVersion")
        if kind not in KINDS:
            ignored[kind or "object without a kind"] += 1
            continue
        group, _, number = version.partition("/")
        if group not in _GROUPS:
            raise TraceError(
                f"{kind} {name!r}: apiVersion must be {_GROUPS[0]}/{VERSIONS[0]} or an older version, got {version!r}"
            )
        if number not in VERSIONS:
            yield f"{kind} {name!r}: the version {number!r} is unknown, and read as {VERSIONS[0]}"
        if not name and kind != "Configuration":
            raise TraceError(f"a {kind} has no metadata.name")
        if (kind, name) in there:
            raise TraceError(f"{kind} {name!r} occurs twice; give each alternative its own file")
        there.add((kind, name))
        unknown = [key for key in object_in(manifest, "spec") if key not in READ_KEYS.get(kind, (key,))]
        unknown += [key for key in _quota_keys(manifest) if key not in _QUOTA_KEYS]
        if unknown:
            yield f"{kind} {name!r}: not modelled: {', '.join(dict.fromkeys(unknown))}"
    for kind, number_ in ignored.items():
        yield f"{number_} {kind} ignored: only the kinds {', '.join(KINDS)} can be changed"


def _quota_keys(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of all quotas in a ClusterQueue or a Cohort."""
    for group in list_in(manifest, "spec", "resourceGroups"):
        for flavor in list_in(group, "flavors"):
            for resource in list_in(flavor, "resources"):
                yield from object_in(resource)


def _check_flavors(before: KueueObjects, objects: KueueObjects) -> None:
    """Check that every flavor that a queue names exists. If one is missing, Kueue stops the
    ClusterQueue.

    Raises:
        TraceError: A flavor does not exist.
    """
    known = [flavor.name for flavor in objects.resource_flavors]
    for queue in objects.cluster_queues:
        if queue in before.cluster_queues:
            continue
        for group in queue.resource_groups:
            for flavor in group.flavors:
                if flavor.name not in known:
                    then = "Kueue would stop the queue (FlavorNotFound), so add the flavor to the file"
                    raise TraceError(
                        f"ClusterQueue {queue.name!r}: there is no ResourceFlavor {flavor.name!r}"
                        + nearest(flavor.name, known, then)
                    )


def _additions(before: KueueObjects, objects: KueueObjects) -> Iterator[str]:
    """Describe the objects that did not exist before, because their names may be misspelt."""
    served = {local.cluster_queue for local in objects.local_queues}
    for kind, old, new in zip(_NAMED, _names(before), _names(objects), strict=True):
        for name in [name for name in new if name not in old]:
            so = ""
            if kind == "ClusterQueue" and name not in served:
                so = ", and no LocalQueue leads to it, so that no workload uses it"
            elif kind == "LocalQueue" and "/" not in name:
                so = ", and it has no namespace"
            elif kind == "ResourceFlavor":
                so = ", so its pods may use every GPU type, and no nodes are added for it"
            elif kind == "Cohort":
                members = [queue.name for queue in objects.cluster_queues if queue.cohort == name]
                so = f", and its members are {', '.join(members[:_MOST_NAMED]) or 'no queues'}"
            yield f"the {kind} {name!r} does not exist today{so}{nearest(name, old)}"


_NAMED = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort")


def _names(objects: KueueObjects) -> Iterator[list[str]]:
    """Yield the names of each kind in ``_NAMED``. Cohorts that only their members mention are
    included."""
    yield [one.name for one in objects.cluster_queues]
    yield [one.name for one in objects.local_queues]
    yield [one.name for one in objects.resource_flavors]
    named = [queue.cohort for queue in objects.cluster_queues] + [one.parent for one in objects.cohorts]
    yield list(dict.fromkeys(filter(None, [*[one.name for one in objects.cohorts], *named])))
