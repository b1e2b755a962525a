"""Parts of GPUs (MIG) against NVIDIA's tables, and on the kernel."""

from itertools import chain, combinations

import numpy as np
import pytest

from dagsim.errors import ConfigError, IllegalDecision, ModelError
from dagsim.model import Cluster, Job, Kind, Node, Share, Start, Task, gpu_type
from dagsim.model.mig import MIG_TABLES, mig_share, slice_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import violations

# `nvidia-smi mig -lgipp` on an A100-SXM4-40GB (ids 19, 15, 14, 9, 5, 0), as in NVIDIA's MIG User Guide.
PLACEMENTS = {
    "1g.5gb": ({0, 1, 2, 3, 4, 5, 6}, 1),
    "1g.10gb": ({0, 2, 4, 6}, 2),
    "2g.10gb": ({0, 2, 4}, 2),
    "3g.20gb": ({0, 4}, 4),
    "4g.20gb": ({0}, 4),
    "7g.40gb": ({0}, 8),
}
# Number of instances of each profile alone ("Number of Instances Available").
AVAILABLE = {"1g": 7, "2g": 3, "3g": 2, "4g": 1, "7g": 1}


def machine(count=1, mig_s=5.0, gpu="A100-40", gpus=1):
    return Cluster(tuple(Node(f"n{at}", gpu_type(gpu), gpus, mig_s=mig_s) for at in range(count)))


def jobs(*rows):
    """Jobs of (arrival, seconds, sevenths of a GPU or number of GPUs, GPU types)."""
    return [
        Job.single(f"j{at}", Task("t", work, gpus=gpus, gpu_types=types[0] if types else None), arrival)
        for at, (arrival, work, gpus, *types) in enumerate(rows)
    ]


def starts_and_ends(schedule):
    times = {}
    for row in schedule.log:
        if row.kind in (Kind.STARTED, Kind.FINISHED):
            times.setdefault(row.job, []).append(row.time_s)
    return times


def test_the_table_of_an_a100_is_that_of_nvidia_smi():
    rows = {one.name: (set(one.starts), one.memory) for one in MIG_TABLES["A100-40"].profiles}
    assert rows == PLACEMENTS
    for other in ("A100-80", "H100"):  # the same slices; NVIDIA lists 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb ...
        assert [one[1:] for one in MIG_TABLES[other].profiles] == [one[1:] for one in MIG_TABLES["A100-40"].profiles]
        names = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"
        assert [one.name for one in MIG_TABLES[other].profiles] == names.split()


def tilings(table, names):
    """All sets of placements of some profiles that do not overlap and to which none can be added, by brute
    force over sets of memory slices (no function of the table is used).
    """
    choices = [
        (one.name, frozenset(range(start, start + one.memory)), one.compute)
        for one in table.profiles
        if one.name in names
        for start in one.starts
    ]
    valid = []
    for chosen in chain.from_iterable(combinations(choices, count) for count in range(1, 8)):
        slices = [one for _, where, _ in chosen for one in where]
        if len(set(slices)) == len(slices) and sum(compute for *_, compute in chosen) <= table.compute:
            valid.append(frozenset(chosen))
    packings = set(valid)
    return [one for one in valid if not any(one | {more} in packings for more in choices if more not in one)], packings


def test_an_a100_has_nineteen_complete_partitions():
    """Six of the left half times three of the right half are the 18 combinations; the 19th is the whole GPU."""
    whole, valid = tilings(MIG_TABLES["A100-40"], [name for name in PLACEMENTS if name != "1g.10gb"])
    assert len(whole) == 19
    left = {frozenset(part for part in one if min(part[1]) < 4) for one in whole if len(one) > 1}
    right = {frozenset(part for part in one if min(part[1]) >= 4) for one in whole if len(one) > 1}
    assert (len(left), len(right)) == (6, 3)
    assert max(map(len, valid)) == 7


def reached(table, names):
    """All sets of parts in use that the table's own rules lead to, from an empty GPU, at any start."""
    indexes = [at for at, one in enumerate(table.profiles) if one.name in names]
    seen, todo = {()}, [()]
    while todo:
        layout = todo.pop()
        for profile in indexes:
            for start in table.profiles[profile].starts:
                if not table.taken(layout) & table.profiles[profile].mask(start):
                    after = table.used(layout, start, profile)
                    if after not in seen:
                        seen.add(after)
                        todo.append(after)
    return seen - {()}


@pytest.mark.parametrize("gpu", MIG_TABLES)
def test_the_rules_allow_exactly_the_valid_sets_of_parts(gpu):
    table = MIG_TABLES[gpu]
    names = [one.name for one in table.profiles]
    _, valid = tilings(table, names)
    mine = {
        frozenset((table.profiles[part.profile].name, part.start) for part in layout)
        for layout in reached(table, names)
    }
    assert mine == {frozenset((name, min(where)) for name, where, _ in one) for one in valid}


@pytest.mark.parametrize(("name", "count"), AVAILABLE.items())
def test_an_empty_gpu_has_room_for_as_many_parts_as_nvidia_says(name, count):
    table = MIG_TABLES["H100"]
    profile = next(at for at, one in enumerate(table.profiles) if one.name.startswith(name))
    layout = ()
    assert table.room(layout, profile) == count
    for _ in range(count):
        layout = table.used(layout, table.opening(layout, profile)[0], profile)
    assert table.opening(layout, profile) is None
    assert table.room(layout, profile) == 0


def test_small_parts_leave_room_for_large_ones():
    table = MIG_TABLES["A100-40"]
    size = {one.name: at for at, one in enumerate(table.profiles)}
    layout = ()
    for name, start in (("1g.5gb", 6), ("2g.10gb", 4), ("4g.20gb", 0)):
        assert table.opening(layout, size[name]) == (start, False)
        layout = table.used(layout, start, size[name])
    layout = table.freed(layout, 4)
    assert table.opening(layout, size["2g.10gb"]) == (4, True)  # it exists
    assert table.opening(layout, size["1g.5gb"]) == (4, False)  # in its place
    assert table.opening(layout, size["3g.20gb"]) is None


def test_names_of_parts():
    assert slice_type("A100-3g.20gb") == ("A100-40", "3g.20gb")
    assert slice_type("H100-3g.40gb") == ("H100", "3g.40gb")
    assert slice_type("A100-40") is slice_type("A100-40-5g.20gb") is slice_type("T4-1g.5gb") is None


def test_the_share_of_a_part_follows_from_the_name_of_its_profile():
    for table in MIG_TABLES.values():
        for profile in table.profiles:
            size, memory_gb = map(int, profile.name.removesuffix("gb").split("g."))
            assert mig_share(size, memory_gb) == profile.compute / table.compute


def test_a_part_is_made_once_and_used_again():
    # Both arrive on an unpartitioned GPU and pay 5 s; the third finds the part of the first; a whole GPU is made again.
    rows = jobs((0, 100, 3 / 7), (0, 200, 3 / 7), (150, 10, 3 / 7), (300, 10, 1.0), (400, 10, 1.0))
    schedule = ClusterKernel(machine(), rows).run(POLICIES.create("fifo"))
    assert starts_and_ends(schedule) == {0: [0, 105], 1: [0, 205], 2: [150, 160], 3: [300, 315], 4: [400, 410]}
    assert not violations(schedule, rows)


def test_a_part_may_displace_a_run_that_holds_the_whole_gpu():
    rows = jobs((0, 1000, 1.0), (5, 10, 1 / 7))
    for mig_s in (None, 0.0):
        times = starts_and_ends(ClusterKernel(machine(mig_s=mig_s), rows).run(POLICIES.create("srtf")))
        assert times[1] == [5, 15], mig_s


def test_sevenths_that_add_up_to_a_gpu_do_not_always_fit():
    """3/7 + 3/7 + 1/7 of the compute slices is one GPU, but two 3g parts take all of its memory."""
    rows = jobs((0, 100, 3 / 7), (0, 100, 3 / 7), (0, 100, 1 / 7))
    fractions = ClusterKernel(machine(mig_s=None), rows).run(POLICIES.create("fifo"))
    assert starts_and_ends(fractions)[2] == [0, 100]
    parts = ClusterKernel(machine(), rows).run(POLICIES.create("fifo"))
    assert starts_and_ends(parts)[2] == [105, 210]


def test_a_task_may_ask_for_the_memory_of_a_profile():
    names = (("A100-40-1g.10gb",),)
    rows = jobs(*[(0, 100, 1 / 7, *names)] * 5)
    times = starts_and_ends(ClusterKernel(machine(mig_s=0.0), rows).run(POLICIES.create("fifo")))
    assert [times[at][0] for at in range(5)] == [0, 0, 0, 0, 100]  # four parts of two memory slices
    whole = ClusterKernel(machine(mig_s=None), rows).run(POLICIES.create("fifo"))
    assert {row.kind for row in whole.log} == {Kind.ARRIVED, Kind.REJECTED}  # no MIG, no such part


def test_a_policy_may_name_the_gpu_of_a_part():
    cluster, rows = machine(gpus=2, mig_s=0.0), jobs((0, 100, 4 / 7), (0, 100, 3 / 7))

    class Named:
        def __init__(self, *gpus):
            self.gpus = gpus

        def decide(self, view):
            return [Start(task, (Share(0, 1, gpu),)) for task, gpu in zip(view.ready, self.gpus, strict=False)]

    schedule = ClusterKernel(cluster, rows).run(Named(0, 1))
    assert [row.gpus for row in schedule.log if row.kind == Kind.STARTED] == [1, 2]
    packed = ClusterKernel(cluster, rows).run(POLICIES.create("fifo"))
    assert [row.gpus for row in packed.log if row.kind == Kind.STARTED] == [1, 1]

    with pytest.raises(IllegalDecision, match="GPU 0 of node 'n0' has no room"):
        ClusterKernel(cluster, jobs((0, 100, 4 / 7), (0, 100, 4 / 7))).run(Named(0, 0))


@pytest.mark.parametrize(
    "policy", ["fifo", "srtf", "easy", "fifo[placement=fgd]", "fifo[placement=gpu-packing]", "las"]
)
def test_policies_play_on_parts(policy):
    rng = np.random.default_rng(3)
    sizes = [1 / 7, 2 / 7, 3 / 7, 4 / 7, 0.5, 1.0, 2.0]
    rows = jobs(*[(float(at), float(rng.integers(1, 60)), sizes[rng.integers(7)]) for at in range(120)])
    kernel = ClusterKernel(machine(2, gpus=2), rows)
    schedule = kernel.run(POLICIES.create(policy))
    assert not violations(schedule, rows)
    assert sum(row.kind == Kind.COMPLETED for row in schedule.log) == 120
    for node in kernel.machines.list:  # all is free again, and the indexes know it
        assert (node.idle, node.free, node.shares) == (2, 3, {})
        assert not any(part.busy for layout in node.layouts.values() for part in layout)
    assert kernel.machines.by_gpus[0].total() == 4
    assert not kernel.machines.shared[0]


def test_a_fork_goes_on_alike():
    rows = jobs(*[(float(at), 20.0 + at, 2 / 7 if at % 2 else 1 / 7) for at in range(40)])
    kernel, policy = ClusterKernel(machine(gpus=2), rows), POLICIES.create("fifo")
    deciding = kernel.decisions()
    view = next(deciding)
    twin = None
    try:
        while True:
            if twin is None and kernel.now > 15:
                twin = kernel.fork()
            view = deciding.send(list(policy.decide(view)))
    except StopIteration:
        pass
    assert twin is not None
    assert list(twin.run(POLICIES.create("fifo")).log) == list(kernel.schedule.log)


def test_errors_name_what_is_allowed():
    with pytest.raises(ModelError, match="T4 does not support MIG, so leave out mig_s; types with MIG: A100-40"):
        Node("n", gpu_type("T4"), 1, mig_s=5.0)
    with pytest.raises(ModelError, match="mig_s must be a finite number of 0 or more, got -1"):
        machine(mig_s=-1)


def test_a_configuration_names_the_line(tmp_path):
    from dagsim.config.schema import load_config

    path = tmp_path / "c.yaml"
    path.write_text("cluster:\n  groups:\n    - {name: a, gpu: T4, gpus: 4, mig_s: 5}\n")
    with pytest.raises(ConfigError, match=r"c\.yaml:3.*mig_s.*T4 does not support MIG; allowed: A100-40"):
        load_config(path)
    path.write_text("cluster:\n  groups:\n    - {name: a, gpu: A100, gpus: 4, mig_s: 5}\n")
    assert load_config(path).build_cluster().nodes[0].mig_s == 5


@pytest.mark.family("compiled")
def test_the_compiled_engine_leaves_parts_to_the_kernel():
    scenario = ClusterScenario(machine(), jobs((0, 100, 3 / 7)), engine="compiled")
    with pytest.raises(ConfigError, match=r"the compiled engine does not support parts of GPUs \(mig_s\)"):
        scenario.check_engine("fifo")


def test_the_parts_in_use_are_a_valid_set_at_all_times():
    rng, table = np.random.default_rng(5), MIG_TABLES["A100-40"]
    _, valid = tilings(table, [one.name for one in table.profiles])
    allowed = {frozenset((name, min(where)) for name, where, _ in one) for one in valid} | {frozenset()}
    kinds = [(one.compute / 7, (f"A100-40-{one.name}",)) for one in table.profiles[:-1]]
    rows = jobs(*[(float(at), float(rng.integers(1, 40)), *kinds[rng.integers(5)]) for at in range(150)])
    kernel, policy = ClusterKernel(machine(2, gpus=2), rows), POLICIES.create("fifo-fit")
    deciding, sizes = kernel.decisions(), []
    view = next(deciding)
    try:
        while True:
            for node in kernel.machines.list:
                for gpu, layout in node.layouts.items():
                    busy = frozenset((table.profiles[part.profile].name, part.start) for part in layout if part.busy)
                    assert busy in allowed
                    used = sum(table.profiles[part.profile].compute * 1_000_000 // 7 for part in layout if part.busy)
                    assert node.shares.get(gpu, 1_000_000) == 1_000_000 - used
                    sizes.append(len(busy))
            view = deciding.send(list(policy.decide(view)))
    except StopIteration:
        pass
    assert max(sizes) >= 4
    assert sum(row.kind == Kind.COMPLETED for row in kernel.schedule.log) == 150
