"""The public names of the RAMP family."""

from dagsim.families.ramp.codecs import RampCodec, RampObservation
from dagsim.families.ramp.decisions import DDLS, PLAIN, OpPlacement, OpSchedule, Partition, Rules
from dagsim.families.ramp.fabric import Fabric
from dagsim.families.ramp.graph import ComputationGraph, Op
from dagsim.families.ramp.kernel import JobOutcome, RampKernel
from dagsim.families.ramp.lookahead import Memo
from dagsim.families.ramp.planner import Outlook, Planner
from dagsim.families.ramp.policies import RAMP_POLICIES
from dagsim.families.ramp.readers import read_graph, read_graphs
from dagsim.families.ramp.scenario import RampScenario
from dagsim.families.ramp.topology import Block, Ramp, Topology
from dagsim.families.ramp.view import RampPolicy, RampView
from dagsim.families.ramp.workload import PAPER_BETAS, RampJob, RampWorkload

__all__ = [
    "DDLS", "PAPER_BETAS", "PLAIN", "RAMP_POLICIES", "Block", "ComputationGraph", "Fabric", "JobOutcome", "Memo", "Op",
    "OpPlacement", "OpSchedule", "Outlook", "Partition", "Planner", "Ramp", "RampCodec", "RampJob", "RampKernel",
    "RampObservation", "RampPolicy", "RampScenario", "RampView", "RampWorkload", "Rules", "Topology", "read_graph",
    "read_graphs",
]  # fmt: skip
