"""``scripts/check_page.py`` passes pages whose charts and titles a narrow window shows in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_page
import pytest

from dagsim.experiment.carry_out import carry_out
from dagsim.experiment.executors import Local
from dagsim.experiment.plan import Plan
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import read_grid
from dagsim.report.grid import Grid

pytestmark = pytest.mark.family("web")

GRID = """
set: {workload.count: 4}
over: {policy: [fifo, sjf, "eft-wait[theta=0.85]"]}
seeds: 2
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if (program := check_page.chromium()) is None:
        pytest.skip("no Chromium, or no Playwright")
    with check_page.browser_of(program) as browser:
        yield browser


def test_a_sweep_over_names_is_drawn_in_rows_that_no_line_joins(browser: Any, tmp_path: Path) -> None:
    from dagsim.families.web.document import write_page

    (tmp_path / "grid.yaml").write_text(GRID)
    plan = Plan.of_grid(read_grid(tmp_path / "grid.yaml"))
    folder = Store.begin(tmp_path / "results", plan, argv=["dagsim", "sweep"])
    carry_out(folder, plan, Local("1"))
    address = write_page([Store.read(folder.path)], tmp_path / "sweep.html").as_uri()
    assert check_page.check(browser, address) == []
    shown = browser.new_page()
    shown.goto(address)
    shown.wait_for_function("() => document.documentElement.dataset.drawn")
    chart = shown.locator("#curves .rows")
    assert (chart.locator("circle").count(), chart.locator("line.span").count()) == (3, 3)
    assert (chart.locator("polyline, path").count(), shown.locator("#curves canvas").count()) == (0, 0)
    ends = chart.locator("line.span").evaluate_all(
        "all => all.map(one => [one.y1.baseVal.value, one.y2.baseVal.value])"
    )
    assert all(first == last for first, last in ends), "a line joins two rows"
    shown.close()


def test_the_title_of_a_wide_table_stays_in_the_window(browser: Any, tmp_path: Path) -> None:
    from dagsim.families.web.document import page_of_parts

    wide = Grid("A title that is longer than a narrow window is wide " * 2, ("head",) * 40, [("cell",) * 40])
    path = tmp_path / "wide.html"
    path.write_text(page_of_parts("Wide", ["One table."], {"Table": [wide]}))
    shown = browser.new_page(viewport={"width": 390, "height": 800})
    shown.goto(path.as_uri())
    assert shown.evaluate(check_page.CUT) == []
    shown.locator(".scroll").evaluate("box => box.scrollLeft = 500")
    assert shown.locator("caption").evaluate("one => one.getBoundingClientRect().left") >= 0
    shown.close()


def test_a_page_of_tables_has_each_title_once_and_no_error(browser: Any, tmp_path: Path) -> None:
    from dagsim.families.web.document import page_of_tables

    grids = [
        Grid(
            "First",
            ("name", "verdict"),
            [("a", "better; better in 8 of 10 seeds; depends on a few seeds")],
            texts=(0, 1),
        )
    ]
    path = tmp_path / "tables.html"
    path.write_text(page_of_tables("Tables", grids))
    assert path.read_text().count("First</") == 1
    assert check_page.check(browser, path.as_uri()) == []
