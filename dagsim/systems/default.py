"""The default system. Its keys are at the top level of a configuration, whereas the keys of any
other system are under ``system``.
"""

from dagsim.systems.cluster.section import ClusterKeys as TopKeys
from dagsim.systems.cluster.section import ClusterSystem as DefaultSystem

__all__ = ["DefaultSystem", "TopKeys"]
