"""RAMP: deep-learning jobs as computation graphs, split over GPUs on an optical fabric. A job that
cannot start at once is lost.
"""

from dagsim.systems.ramp.codecs import RampCodec, RampObservation
from dagsim.systems.ramp.decisions import (
    DDLS,
    PLAIN,
    OpPlacement,
    OpSchedule,
    Partition,
    Rules,
)
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.graph import ComputationGraph, Op
from dagsim.systems.ramp.kernel import JobOutcome, RampKernel
from dagsim.systems.ramp.lookahead import Memo
from dagsim.systems.ramp.planner import Outlook, Planner
from dagsim.systems.ramp.policies import RAMP_POLICIES
from dagsim.systems.ramp.readers import read_graph, read_graphs
from dagsim.systems.ramp.scenario import RampScenario
from dagsim.systems.ramp.topology import Block, Ramp, Topology
from dagsim.systems.ramp.view import RampPolicy, RampView
from dagsim.systems.ramp.workload import PAPER_BETAS, RampJob, RampWorkload

__all__ = [
    "DDLS",
    "PAPER_BETAS",
    "PLAIN",
    "RAMP_POLICIES",
    "Block",
    "ComputationGraph",
    "Fabric",
    "JobOutcome",
    "Memo",
    "Op",
    "OpPlacement",
    "OpSchedule",
    "Outlook",
    "Partition",
    "Planner",
    "Ramp",
    "RampCodec",
    "RampJob",
    "RampKernel",
    "RampObservation",
    "RampPolicy",
    "RampScenario",
    "RampView",
    "RampWorkload",
    "Rules",
    "Topology",
    "read_graph",
    "read_graphs",
]
