"""The causes of a job's waiting: a fold over the log with the kernel's own arithmetic and the policy's own limits."""

from dagsim.systems.cluster.waits.causes import Cause, CauseKind, Causes, Stretch, WaitRules, causes_by_time
from dagsim.systems.cluster.waits.past import binding_causes

__all__ = ["Cause", "CauseKind", "Causes", "Stretch", "WaitRules", "binding_causes", "causes_by_time"]
