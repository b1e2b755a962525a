"""The family of elastic training jobs, and everything that it registers."""

from dagsim.family import Entry, Family

_RESIZES = ("preemptive", "costly", "elastic")

FAMILY = Family(
    "training jobs whose GPUs can change while they run: goodput, Pollux and Sia",
    adds={
        "services": (
            Entry("measured_applications", ".profiles:read_applications"),
            Entry("seconds_alone", ".training_jobs:seconds_alone"),
        ),
        "keys": (Entry("elastic", ".tasks:ElasticTasks", "ranges of GPUs and goodput models for tasks"),),
        "policies": (
            Entry(
                "pollux",
                ".pollux_policy:Pollux",
                "based on Pollux: a genetic search assigns GPUs to elastic tasks",
                _RESIZES,
            ),
            Entry(
                "sia",
                ".sia_policy:Sia",
                "based on Sia: an integer program chooses a configuration for each task",
                _RESIZES,
            ),
            Entry(
                "elastic-eft-wait",
                ".eft_resize:EftResize",
                "elastic tasks: GPUs go to the tasks that gain the most from them",
                ("estimates", *_RESIZES),
            ),
        ),
    },
)
