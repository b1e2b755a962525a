from __future__ import annotations

import copy
import pickle
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.log_reading import ends

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, ModelError
from dagsim.model import GPU_TYPES, Cluster, GpuType, Job, Node, Task, gpu_type
from dagsim.systems.cluster.models.runtime import Fed, Feed, Flops, Recorded, Throughput
from dagsim.systems.cluster.models.throughputs import shipped_throughputs
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

A100, V100, T4, P100, K80 = map(gpu_type, ("A100", "V100", "T4", "P100", "K80"))
MACHINES = (A100, V100, T4, None)


def test_flops_divides_work_by_the_reachable_rate():
    # TF32: A100 155.9; V100 and T4 have none and fall back on FP32, 15.67 and 8.14; all times 0.35
    expected = (100 / (0.35 * 155.9), 100 / (0.35 * 15.67), 100 / (0.35 * 8.14), inf)
    assert Flops().seconds(Task("train", work=100.0), MACHINES) == pytest.approx(expected)


def test_flops_runs_a_cpu_task_on_the_cores_it_asks_for():
    # 28 TFLOP / (0.5 x 0.1 TFLOPS x 4 cores) = 140 s, on any machine; without cores as on one: 560 s
    model = Flops(efficiency=0.5, cpu_tflops_per_core=0.1)
    assert model.seconds(Task("load", 28.0, gpus=0, cpus=4), MACHINES) == pytest.approx((140.0,) * 4)
    assert model.seconds(Task("load", 28.0, gpus=0), (None,)) == pytest.approx((560.0,))


def test_recorded_seconds_without_a_reference_hold_everywhere():
    assert Recorded().seconds(Task("train", 30.0), MACHINES) == (30.0, 30.0, 30.0, inf)
    assert "unknown GPU type" in str(Recorded())


def test_recorded_seconds_scale_by_peak_rates():
    # FP32: V100 15.67, T4 8.14, A100 19.49
    expected = (10 * 15.67 / 19.49, 10.0, 10 * 15.67 / 8.14, inf)
    assert Recorded("V100").seconds(Task("train", 10.0), MACHINES) == pytest.approx(expected)
    assert Recorded("V100", scale="none").seconds(Task("train", 10.0), MACHINES) == (10.0, 10.0, 10.0, inf)


@pytest.mark.parametrize("model", [Recorded(), Recorded("T4"), Throughput()])
def test_a_cpu_task_takes_its_seconds_anywhere(model):
    assert model.seconds(Task("load", 12.0, gpus=0), MACHINES) == (12.0, 12.0, 12.0, 12.0)


@pytest.mark.parametrize(
    ("model", "v100", "a100"), [("bert", 2.6, 5.2), ("deepspeech2", 2.3, 1.5), ("cifar10", 2.9, 5.4)]
)
def test_measured_speeds_relative_to_a_t4(model, v100, a100):
    # Sia, SOSP 2023: samples/s at the largest batch all three ran; BERT 12.86 : 33.31 : 67.45
    seconds = Throughput(reference="T4").seconds(Task("train", 100.0, model=model), (T4, V100, A100))
    assert 100 / seconds[0] == 1.0
    assert 100 / seconds[1] == pytest.approx(v100, abs=0.05)
    assert 100 / seconds[2] == pytest.approx(a100, abs=0.05)


def test_one_speed_per_type_cannot_be_right_for_two_models():
    fastest = {
        model: min(zip(Throughput().seconds(Task("train", 1.0, model=model), (T4, V100, A100)), "TVA", strict=True))[1]
        for model in ("bert", "deepspeech2")
    }
    assert fastest == {"bert": "A", "deepspeech2": "V"}


def test_best_batch_rewards_memory():
    # BERT at each type's own best batch: A100 140.442, V100 42.235 samples/s
    task = Task("train", 10.0, model="bert")
    assert Throughput(batch="best").seconds(task, (A100,)) == pytest.approx((10 * 42.235 / 140.442,))
    assert Throughput(batch="common").seconds(task, (A100,)) == pytest.approx((10 * 33.31 / 67.449,))


def test_gavel_recommendation_is_slower_on_a_v100():
    # batch 2048, steps/s: V100 7.4696, P100 16.597, K80 10.441
    task = Task("train", 10.0, model="recommendation", batch=2048)
    expected = (10.0, 10 * 7.4696 / 16.597, 10 * 7.4696 / 10.441)
    assert Throughput().seconds(task, (V100, P100, K80)) == pytest.approx(expected, rel=1e-4)


def test_a_batch_of_its_own_is_told_apart_from_no_batch():
    at_2048, without = (Task("train", 10.0, model="recommendation", batch=batch) for batch in (2048, None))
    model, types = Throughput(), (V100, P100, K80)
    assert [model.seconds(task, types) for task in (at_2048, without, at_2048)] == [
        Throughput().seconds(task, types) for task in (at_2048, without, at_2048)
    ]
    assert model.seconds(at_2048, types) != model.seconds(without, types)


def test_another_memory_size_is_the_same_chip():
    task = Task("train", 10.0, model="bert")
    both = Throughput().seconds(task, tuple(map(gpu_type, ("V100-16", "V100-32", "A100-40", "A100-80"))))
    assert both[0] == both[1]
    assert both[2] == both[3]


def test_ncf_on_v100_is_left_out():
    table = shipped_throughputs()
    assert not table.batches("ncf", V100)
    assert table.batches("ncf", A100)


def test_every_shipped_row_names_a_known_type_and_its_source():
    assert all(row.gpu in GPU_TYPES and row.source.startswith(("Sia", "Gavel")) for row in shipped_throughputs().rows)


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (Task("train", 1.0, model="bert"), ["'train'", "'bert'", "K80"]),
        (Task("train", 1.0, model="bert", batch=5), ["'bert'", "batch 5"]),
        (Task("train", 1.0, model="gpt9"), ["'gpt9'"]),
        (Task("train", 1.0), ["'train'", "no model"]),
    ],
)
def test_what_the_table_lacks_is_named(task, named):
    with pytest.raises(ModelError) as error:
        Throughput().seconds(task, (K80,))
    assert all(word in str(error.value) for word in named)


def test_what_the_table_lacks_falls_back_on_flops_if_asked():
    # FP32: K80 4.37, V100 15.67; an allowed type is looked up as before
    seconds = Throughput(missing="flops").seconds(Task("train", 10.0, model="bert"), (K80, V100))
    assert seconds == pytest.approx((10 * 15.67 / 4.37, 10.0))


def test_a_type_that_is_not_allowed_needs_no_measurement():
    task = Task("train", 10.0, model="bert", gpu_types=("V100",))
    assert Throughput().seconds(task, (K80, V100)) == (inf, 10.0)


@pytest.mark.parametrize("model", [Flops(), Recorded(), Recorded("T4"), Throughput()])
def test_own_speeds_override_every_model(model):
    task = Task("train", 12.0, model="bert", speeds={"A100": 4.0, "V100-16": 2.0, "T4": 0.5})
    assert model.seconds(task, MACHINES) == (3.0, 6.0, 24.0, inf)


def test_own_speeds_override_only_the_types_they_name():
    task = Task("train", 12.0, speeds={"T4": 0.5})
    assert Recorded().seconds(task, (T4, V100)) == (24.0, 12.0)
    assert Throughput(missing="flops").seconds(task, (T4, V100)) == (24.0, 12.0)


def test_own_speed_zero_means_it_cannot_run_there():
    assert Recorded().seconds(Task("train", 12.0, speeds={"T4": 0.0}), (T4, V100)) == (inf, 12.0)


def test_own_negative_speed_is_refused():
    with pytest.raises(ModelError, match="its speed on T4 must be 0 or more"):
        Recorded().seconds(Task("train", 12.0, speeds={"T4": -1.0}), (T4, V100))


def test_own_speeds_do_not_stick_to_the_next_task():
    model = Recorded()
    model.seconds(Task("fast", 10.0, speeds={"T4": 5.0}), MACHINES)
    assert model.seconds(Task("plain", 10.0), MACHINES)[2] == 10.0


def test_allowed_types_bind_cpu_tasks_too():
    assert Recorded().seconds(Task("load", 5.0, gpus=0, gpu_types=("T4",)), MACHINES) == (inf, inf, 5.0, inf)


def test_work_of_nothing_takes_no_time_but_only_where_it_can_run():
    assert Recorded().seconds(Task("mark", 0.0), (T4, None)) == (0.0, inf)


@pytest.mark.parametrize("gpus", [0.25, 1.0, 8.0])
def test_seconds_do_not_depend_on_the_share_or_count_of_gpus(gpus):
    # Work is what each GPU of an instance has to do; sharing slows nobody down.
    assert Recorded().seconds(Task("train", 10.0, gpus=gpus), (T4,)) == (10.0,)


@given(work=st.floats(0, 1e9), types=st.lists(st.sampled_from([*GPU_TYPES.values(), None]), min_size=1, max_size=4))
def test_an_answer_does_not_depend_on_what_was_asked_before(work, types):
    used, task = Recorded("V100"), Task("train", work)
    for gpus in (MACHINES, tuple(types), tuple(types[::-1])):
        used.seconds(task, gpus)
    assert used.seconds(task, tuple(types)) == Recorded("V100").seconds(task, tuple(types))


def test_many_distinct_tuples_are_answered_right():
    model = Recorded("V100")
    for rate in range(1, 300):
        gpu = GpuType("mine", float(rate), 16, 100, 100, 10)
        assert model.seconds(Task("train", 1.0), (gpu,)) == pytest.approx((15.67 / rate,))


@pytest.mark.parametrize("model", [Flops("fp16", 0.4), Recorded("T4", "none"), Throughput("T4", "best", "flops")])
def test_a_model_is_a_plain_value(model):
    model.seconds(Task("train", 1.0, model="bert"), (T4,))
    for same in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same == model
        assert hash(same) == hash(model)
        assert same.seconds(Task("train", 1.0), (T4,)) == model.seconds(Task("train", 1.0), (T4,))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Flops("fp8"),
        lambda: Flops(efficiency=0.0),
        lambda: Flops(efficiency=1.5),
        lambda: Flops(cpu_tflops_per_core=0.0),
        lambda: Recorded("V1000"),
        lambda: Recorded("V100", "fp8"),
        lambda: Throughput("V1000"),
        lambda: Throughput(batch="big"),
        lambda: Throughput(missing="ignore"),
    ],
)
def test_bad_options_are_refused(build):
    with pytest.raises(ModelError):
        build()


def test_a_table_of_your_own(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("model,gpu,batch,samples_per_s\nllm,V100,8,10\nllm,A100,8,35\n")
    model = Throughput(table=str(path))
    assert model.seconds(Task("train", 70.0, model="llm"), (A100, V100)) == (20.0, 70.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model,gpu,batch\nllm,V100,8\n", [":1:", "samples_per_s"]),
        ("model,gpu,batch,samples_per_s\nllm,V100,8,10\nllm,T4,8,fast\n", [":3:", "'fast'"]),
        ("model,gpu,batch,samples_per_s\nllm,V100,8,-1\n", [":2:", "'-1'"]),
        ("model,gpu,batch,samples_per_s\nllm,V100\n", [":2:", "None"]),
    ],
)
def test_a_bad_table_names_file_and_line(tmp_path, text, named):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        Throughput(table=str(path)).seconds(Task("train", 1.0, model="llm"), (T4,))
    assert all(word in str(error.value) for word in [str(path), *named])


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        Throughput(table=str(tmp_path / "absent.csv")).seconds(Task("train", 1.0, model="llm"), (T4,))


@pytest.mark.data
def test_the_shipped_table_is_the_published_one(data):
    published = {}
    for line in (data / "traces/gpu-throughputs/single_gpu_by_type.csv").read_text().splitlines()[1:]:
        model, gpu, batch, _, rate = line.split(",")
        name = {"A100": "A100-40", "V100": "V100-32", "RTX2080Ti": "RTX-2080Ti"}.get(gpu, gpu)
        published[model, name, int(batch)] = float(rate)
    rows = [row for row in shipped_throughputs().rows if row.source.startswith("Sia")]
    assert rows
    assert all(published[row.model, row.gpu, row.batch] == row.samples_per_s for row in rows)


@pytest.mark.parametrize(
    ("cpus", "memory_gb", "rate"),
    [
        (0, 0, (1.0, 19.49 / 15.67)),  # nothing is stated: only the GPU limits
        (12, 0, (1.0, 1.2)),  # 12 of 10 cores feed 1.2 V100s, a little less than an A100
        (5, 0, (0.5, 0.5)),
        (20, 100, (1.0, 19.49 / 15.67)),
        (20, 60, (0.5, 0.5)),  # 40 % come from storage, which feeds a fifth of a V100: .2 / .4
        (20, 90, (1.0, 19.49 / 15.67)),  # 10 %: 2 V100s
        (4, 60, (0.4, 0.4)),
    ],
)
@pytest.mark.parametrize("gpus", [1, 4])
def test_a_gpu_trains_no_faster_than_cores_memory_and_storage_feed_it(
    cpus: float, memory_gb: float, rate: tuple[float, float], gpus: int
) -> None:
    fed = Fed({"resnet50": Feed(cpus=10, memory_gb=100, uncached=0.2)}, base=Recorded("V100-16"))
    task = Task("t", 60.0, gpus=gpus, cpus=cpus * gpus, memory_gb=memory_gb * gpus, model="resnet50")
    assert fed.rates(task, (V100, A100)) == pytest.approx(rate, rel=1e-3)
    assert fed.seconds(task, (V100, A100)) == pytest.approx([60 / one for one in rate], rel=1e-3)
    other = Task("t", 60.0, gpus=gpus, cpus=0.1, model="lm")
    assert fed.rates(other, (V100,)) == (1.0,)


def test_a_configuration_names_what_feeds_its_models(tmp_path: Path) -> None:
    text = "runtime: {kind: fed, base: {kind: recorded, reference: V100-16}, models: {bert: {cpus: 3}}}\n"
    (tmp_path / "c.yaml").write_text(text)
    runtime = load_config(tmp_path / "c.yaml").runtime
    assert runtime == Fed({"bert": Feed(3)}, Recorded("V100-16"))
    assert hash(runtime) == hash(Fed({"bert": Feed(3)}, Recorded("V100-16")))  # a load is fitted once per runtime
    (tmp_path / "c.yaml").write_text(text.replace("cpus: 3", "cpus: -3"))
    with pytest.raises(ConfigError, match="runtime fed: bert: cpus and memory_gb must be 0 or more"):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(("cores", "ends_s"), [("proportional", (100, 100 * 5 / 3)), ("sensitive", (100, 100))])
def test_models_that_need_few_cores_leave_them_to_those_that_need_many(cores: str, ends_s: tuple[float, float]) -> None:
    # 3 cores per GPU: four tasks need 5 and four need 1, which is 24 altogether.
    feeds = {"lean": Feed(cpus=1), "hungry": Feed(cpus=5)}
    fed = Fed(feeds, Recorded("V100-16"), cores=cores)  # type: ignore[arg-type]
    jobs = [
        Job.single(f"{model}{n}", Task("t", 100.0, cpus=7.0, model=model), float(0))
        for n in range(4)
        for model in feeds
    ]
    cluster = Cluster((Node("n", V100, 8, cpus=24),))
    schedule = ClusterScenario(cluster, jobs, runtime=fed).kernel(0).run(POLICIES.create("fifo"))
    done_s = ends(schedule)
    assert done_s == pytest.approx({job.id: ends_s[job.id.startswith("hungry")] for job in jobs})


def test_the_choice_of_cores_has_limits_and_leaves_other_tasks_alone() -> None:
    cluster = Cluster((Node("n", V100, 8, cpus=24), Node("a", A100, 4, cpus=16)))
    fed = Fed({"lean": Feed(cpus=0.1), "hungry": Feed(cpus=50)}, Recorded("V100-16"), cores="sensitive")

    def cpus(model: str | None, gpus: float = 2.0, **rest: Any) -> float:
        job = Job.single("j", Task("t", 1.0, gpus=gpus, cpus=7.0, model=model, **rest))
        return fed.job(job, cluster).tasks[0].cpus

    assert [cpus("lean"), cpus("hungry"), cpus("other")] == [2.0, 12.0, 6.0]
    assert cpus("hungry", gpu_types=("A100-40",)) == 16.0
    assert [cpus("hungry", 0.5), cpus("hungry", 0.0), cpus("lean", gpu_types=("T4",))] == [7.0, 7.0, 7.0]
    assert Fed({}, cores="asked").job(job := Job.single("j", Task("t", 1.0, cpus=7.0)), cluster) is job
