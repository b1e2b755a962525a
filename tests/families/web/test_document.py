from __future__ import annotations

import base64
import gzip
import hashlib
import inspect
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.command_line import fine
from support.runs import outcomes

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.families.web.document import answered, page, static, write_page
from dagsim.metrics import columns
from dagsim.pictures.colours import COLOURS

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>&\"'"
LOADING = {"src", "href", "srcset", "data", "action", "formaction", "poster", "background", "style"}


class Seen(HTMLParser):
    """The elements of a page, their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.open = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = False

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", {}))
        self.open = False

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style"):
            name = self.tags[-1][1].get("id") or self.tags[-1][0]
            if self.open:
                data = self.inside.pop()[1] + data
            self.inside.append((name, data))
            self.open = True


def folder_of(root: Path, config: Config, policies: tuple[str, ...]) -> Store:
    folder = RunStore.create(root, "eval", config, argv=["dagsim", "eval", EVIL], policies=policies)
    for result in outcomes(config, policies):
        folder.add(result)
    folder.finish()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Store:
    config = Config.model_validate({"workload": {"kind": "synthetic", "count": 60, "load": 1.5}, "seeds": 5})
    return folder_of(tmp_path_factory.mktemp("results"), config, ("fifo", "sjf"))


def unpacked(text: str) -> tuple[dict, list[np.ndarray]]:
    data = next(inside for where, inside in Seen(text).inside if where == "data")
    whole = gzip.decompress(base64.b64decode(data))
    length = int.from_bytes(whole[:4], "little")
    header = json.loads(whole[4 : 4 + length])
    types = {"Float64Array": "<f8", "Float32Array": "<f4", "Int32Array": "<i4", "Uint8Array": "u1"}
    arrays = [np.frombuffer(whole, types[kind], count, 4 + length + offset) for kind, offset, count in header["arrays"]]
    return header["facts"], arrays


def test_a_page_asks_for_nothing_outside_itself(folder: Store) -> None:
    seen = Seen(page([folder]))
    assert {tag for tag, _ in seen.tags}.isdisjoint({"img", "link", "iframe", "object", "embed", "base", "form"})
    assert not [(tag, name) for tag, attributes in seen.tags for name in attributes if name in LOADING]
    assert not [(tag, name) for tag, attributes in seen.tags for name in attributes if name.startswith("on")]


def test_the_policy_allows_these_scripts_and_styles_and_no_other(folder: Store) -> None:
    seen = Seen(page([folder]))
    policy = next(of["content"] for tag, of in seen.tags if of.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, named in (("script", "script-src"), ("style", "style-src")):
        texts = [text for where, text in seen.inside if where == kind]
        hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert re.search(rf"{named} ([^;]*)", policy)[1].split() == hashes


def test_markup_in_names_is_shown_as_text(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, schedule = Store.lines, Store.schedule
    monkeypatch.setattr(
        Store,
        "lines",
        lambda self: [
            replace(line, policy=line.policy + EVIL, workload=line.workload | {"warning": EVIL, "cluster": EVIL})
            for line in lines(self)
        ],
    )

    def renamed(self, number):
        result = schedule(self, number)
        result.jobs = [
            job._replace(id=job.id + EVIL, tenant=f"{EVIL}{place % 2}") for place, job in enumerate(result.jobs)
        ]
        return result

    clean = Seen(page([folder]))
    monkeypatch.setattr(Store, "schedule", renamed)
    text = page([folder])
    assert "alert('x')" not in text
    assert "<img" not in text
    assert text.count("&lt;/script&gt;") > 20  # the names are there
    seen = Seen(text)
    assert [tag for tag, _ in seen.tags].count("script") == [tag for tag, _ in clean.tags].count("script")
    assert all(name.endswith(EVIL) for name in unpacked(text)[0]["runs"][0]["jobs"]["ids"])


def test_the_verdict_comes_first_and_in_words(folder: Store) -> None:
    text = page([folder])
    verdict = re.search(r'<p class="verdict">(.*?)</p>', text)[1]
    assert re.fullmatch(r"sjf: mean JCT [\d.]+ times that of fifo( \(95% interval .*\))?: .+ of 5 seeds.*\.", verdict)
    assert "identical" not in verdict
    assert text.index('class="verdict"') < text.index("<table")


def test_the_bars_and_distributions_are_those_of_the_schedule(folder: Store) -> None:
    facts, arrays = unpacked(page([folder]))
    assert [run["name"] for run in facts["runs"]] == ["fifo, seed 0", "sjf, seed 0"]
    numbers = [[line.policy for line in folder.lines()].index(policy) for policy in ("fifo", "sjf")]
    for number, run in zip(numbers, facts["runs"], strict=True):
        schedule = folder.schedule(number)
        cols = columns(schedule)
        bars = run["bars"]
        assert (np.diff(arrays[bars["start"]]) >= 0).all()
        area = (arrays[bars["length"]].astype(float) * arrays[bars["height"]]).sum()
        assert area == pytest.approx(cols.runs.gpu_s.sum(), rel=1e-5)
        assert run["jobs"]["ids"] == list(cols.jobs.ids)
        held = next(curve for curve in run["curves"] if curve["title"] == "GPUs")
        mean = arrays[held["series"][0][1]].astype(float).mean()
        assert mean * cols.horizon_s == pytest.approx(cols.runs.gpu_s.sum(), rel=1e-5)
    for figure in facts["distributions"].values():
        for _, at in figure["series"]:
            assert (np.diff(arrays[at]) >= 0).all()
            assert arrays[at][-1] == 1.0


def test_equal_folders_give_equal_pages(folder: Store) -> None:
    assert page([folder]) == page([folder])


def test_how_to_repeat_it_is_on_the_page(folder: Store) -> None:
    text = page([folder])
    assert folder.manifest["config_sha256"] in text
    assert "dagsim eval" in text


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    empty = RunStore.create(tmp_path, "eval", Config(), argv=["dagsim"])
    with pytest.raises(InputError, match="there is no finished run"):
        page([empty])


@pytest.mark.parametrize("system", ["spark", "ramp"])
def test_every_system_has_a_page(system: str, tmp_path: Path) -> None:
    extra = {"spark": ["--set", "system.jobs=5"], "ramp": ["--policy", "min", "--set", "system.jobs=5"]}[system]
    command = f"eval --system {system} --seeds 1 --no-plots --quiet --workers 1".split()
    fine(*command, *extra, "-o", tmp_path)
    (run,) = tmp_path.iterdir()
    fine("report", run)
    facts, arrays = unpacked((run / "report.html").read_text(encoding="utf-8"))
    assert len(arrays[facts["runs"][0]["bars"]["start"]])


def test_folders_of_different_jobs_are_shown_but_not_compared(folder: Store, tmp_path: Path) -> None:
    other = folder_of(tmp_path, Config.model_validate({"workload": {"kind": "synthetic", "count": 20}}), ("fifo",))
    text = write_page([folder, other], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "not compared: " in text
    assert other.path.name in text


def test_scripts_draw_with_the_palette_of_all_pictures() -> None:
    script = static("gantt.js")
    assert " ".join(COLOURS) in script
    assert "@COLOURS@" not in script
    assert "#0072B2" not in static("page.js")


def test_every_canvas_and_picture_of_a_page_has_a_name() -> None:
    parts = Path(str(inspect.getsourcefile(page))).parent / "static"
    texts = "".join(path.read_text() for path in sorted(parts.glob("*.html")))
    tags = re.findall(r"<(?:canvas|svg)[^>]*>", texts)
    assert tags
    for tag in tags:
        assert "aria-label" in tag or 'aria-hidden="true"' in tag, tag


@pytest.mark.parametrize(("lines", "folded"), [(1, 0), (10, 0), (11, 1), (69, 59)])
def test_only_the_first_sentences_of_an_answer_stand_above_the_rest(lines: int, folded: int) -> None:
    text = answered("t", [f"sentence {number}." for number in range(lines)], [], "")
    assert text.count("sentence ") == lines
    assert text.partition("<details>")[2].count("sentence ") == folded
    assert (f"<summary>and {folded} more</summary>" in text) == (folded > 0)


def test_a_warning_is_never_folded() -> None:
    text = answered("t", [*(f"sentence {number}." for number in range(12)), "warning: look at this."], [], "")
    assert "warning: look at this." in text.partition("<details>")[0]
    assert text.count("warning: look at this.") == 1
