"""Tables of policies: what they say, and that they fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from rich.console import Console
from support.command_line import invoke

from dagsim.metrics.standings import Sample, standings
from dagsim.report.comparison import comparison_table
from dagsim.report.grid import Grid
from dagsim.report.tables import workload_notes

TAIL = {"jct_s.p95": 2e7, "jct_s.p99": 9e7, "jobs_completed": 60, "jobs_arrived": 60}
LONG = "eft-wait[theta=0.85,order=work,reserve=0.25]"
TWIN = "eft-wait[theta=0.85,order=work,reserve=0.5]"


class Line(NamedTuple):
    policy: str
    seed: int
    metrics: dict[str, Any]


def lines(n: int = 6, **more: list[float]) -> list[Line]:
    fifo = [10_000_000.0 + 99_000 * seed for seed in range(n)]
    rows = {"fifo": fifo, LONG: [0.5 * v + 1000 * (i % 2) for i, v in enumerate(fifo)], TWIN: [0.9 * v for v in fifo]}
    rows["first"] = rows[TWIN]
    return [
        Line(policy, seed, {"jct_s.mean": value, "jobs_arrived": 1, "jobs_completed": 1})
        for policy, values in (rows | more).items()
        for seed, value in enumerate(values)
    ]


def printed(grid: Grid, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(grid)
    return capture.get()


def test_a_table_fits_80_columns_and_cuts_no_name() -> None:
    text = printed(comparison_table(standings(lines()), workload="heterogeneous"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    squeezed = "".join(text.split())
    assert "reserve=0.25]" in squeezed
    assert "reserve=0.5]" in squeezed


def test_a_table_says_workload_n_and_method() -> None:
    text = " ".join(printed(comparison_table(standings(lines()), workload="heterogeneous")).split())
    assert "4 policies, heterogeneous, 6 seeds; lowest mean JCT first" in text
    assert "(geometric mean over the seeds). interval: Student's t on the logarithms" in text
    alone = standings([line for line in lines() if line.policy == "fifo"])
    assert printed(comparison_table(alone)).startswith("1 policy, 6 seeds")
    assert "verdict: p < 0.05." in text  # two of three rows never vary: one test, nothing for Holm to do


def test_equal_rows_are_printed_as_one() -> None:
    grid = comparison_table(standings(lines()))
    (row,) = [row for row in grid.rows if "= first" in row[0]]
    assert row[0].replace("\n", "") == f"{TWIN}= first"
    assert row[-1] == "the same ratio"


def test_few_seeds_and_one_trace_have_no_verdict() -> None:
    assert "too few seeds for a verdict: 4 of 5." in printed(comparison_table(standings(lines(4))))
    grid = comparison_table(standings(lines(1), sample=Sample.TRACE))
    assert "One log is only one sample" in printed(grid)
    assert {row[3] for row in grid.rows} == {"-"}


def test_windows_of_a_trace_have_both_intervals_approximate_below_three_hundred() -> None:
    grid = comparison_table(standings(lines(), sample=Sample.WINDOW))
    text = printed(grid)
    assert "approximate: about 300 windows are needed" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    (row,) = [row for row in grid.rows if row[0].startswith("eft") and row[5].startswith("better")]
    assert row[1:4] == ("0.500", "0.500..0.500~", "0.500..0.500")


def test_a_table_marks_approximate_intervals_and_says_how_many_seeds_they_need() -> None:
    tails = [line._replace(metrics=line.metrics | TAIL) for line in lines(20) if line.policy in ("fifo", LONG)]
    grid = comparison_table(standings(tails))
    (row,) = [row for row in grid.rows if row[0] == LONG]
    assert row[3].endswith("~")
    (note,) = [note for note in grid.notes if note.startswith("~")]
    assert "approximate" in note
    assert "about 300 seeds are needed" in note
    assert not any(note.startswith("~") for note in comparison_table(standings(lines(20))).notes)


def test_wide_adds_the_other_ratios() -> None:
    grid = comparison_table(standings(lines()), wide=True)
    assert "of all\njob-seconds" in grid.heads
    assert "median\nratio" in grid.heads
    assert len({len(row) for row in grid.rows} | {len(grid.heads)}) == 1


def test_markdown_and_latex_hold_the_whole_names() -> None:
    grid = comparison_table(standings(lines()))
    assert f"| {LONG} |" in grid.markdown()
    latex = grid.latex()
    assert f"{LONG} & " in latex
    assert r"95\% interval" in latex
    assert latex.count(r"\\") == len(grid.rows) + 1


def test_latex_has_a_label_and_the_notes_apart_from_the_caption() -> None:
    grid = comparison_table(standings(lines()), workload="steady")
    latex = grid.latex().splitlines()
    assert latex[1].startswith(r"\caption{4 policies, steady")
    assert "ratio: relative to" not in latex[1]
    assert latex[2].startswith(r"\label{tab:4-policies-steady")
    assert [line for line in latex if line.startswith(r"\par\footnotesize ")] == latex[-1 - len(grid.notes) : -1]


@pytest.mark.parametrize(
    ("name", "columns", "shown"),
    [
        ("fifo", 20, ["fifo"]),
        ("slurm-multifactor", 14, ["slurm-", "multifactor"]),
        ("tenant physics", 20, ["tenant physics"]),
        ("constant[degree=4]", 12, ["constant[", "degree=4]"]),
        ("eft-wait[theta=0.85,order=work]", 22, ["eft-wait[theta=0.85,", "order=work]"]),
        ("a_name_that_has_no_place_to_break", 10, ["a_name_that_has_no_place_to_break"]),
    ],
)
def test_a_name_breaks_between_its_parts_and_never_within_a_word(name: str, columns: int, shown: list[str]) -> None:
    grid = Grid("", ("policy", "mean"), [(name, "1,234.5")])
    body = printed(grid, columns + 9 if len(shown) > 1 else 80).splitlines()[2:]
    assert [line[: max(map(len, shown))].strip() for line in body] == shown


def test_a_narrow_table_breaks_names_before_numbers() -> None:
    heads = ("cluster", "policy", "wait (s)", "p95", "energy", "ratio", "verdict")
    row = ("remove 16xA100-40 add 16xH200", "slurm-multifactor[age=2]", "12,345", "23,456", "123.4", "0.87", "better")
    text = printed(Grid("", heads, [row], (), (0, 1, 6)), 64)
    assert max(map(len, text.splitlines())) <= 64
    for whole in ("16xA100-40", "multifactor[", "12,345", "23,456", "better"):
        assert whole in text


def test_a_system_without_a_load_prints_none() -> None:
    facts = {"cluster": "50 executors", "gpu_load": None, "cpu_load": None, "warning": None}
    assert workload_notes([facts]) == ["cluster: 50 executors"]


def test_statistics_of_a_workload_cut_no_name() -> None:
    result = invoke("workload", "info", "heavy-tailed")
    for name in ("instances_per_task", "critical_path_s", "tasks_per_job"):
        assert name in result.output
    assert "\N{HORIZONTAL ELLIPSIS}" not in result.output
    assert max(map(len, result.output.splitlines()[:10])) <= 80


def test_policies_that_are_alike_share_a_row_unless_a_column_that_is_shown_tells_them_apart() -> None:
    def line(policy: str, seed: int, p99: float) -> Line:
        return Line(policy, seed, {"jct_s.mean": 100.0 + seed} | TAIL | {"jct_s.p99": p99})

    twins = [line(policy, seed, p99) for policy, p99 in (("fifo", 1.0), ("sjf", 2.0)) for seed in range(6)]
    same = [line(policy, seed, 1.0) for policy in ("fifo", "sjf") for seed in range(6)]
    assert len(comparison_table(standings(twins)).rows) == len(comparison_table(standings(same), wide=True).rows) == 1
    assert len(comparison_table(standings(twins), wide=True).rows) == 2
