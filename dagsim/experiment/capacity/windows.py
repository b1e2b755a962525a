"""Windows of a log to ask questions on: as many and as long as it has room for."""

from __future__ import annotations

from dataclasses import replace

from dagsim.config.schema import Config

__all__ = ["on_windows"]

_WINDOWS, _JOBS, _FEWEST_JOBS, _FEWEST = 20, 1000, 100, 5


def on_windows(config: Config) -> Config:
    """The configuration on windows of its trace, where it asks for none: 20 of up to 1,000 jobs, fewer of 100 where
    the trace is short, and all of it at once where there is no room for five.

    Raises:
        ConfigError: Its workload is no trace.
        TraceError: The trace cannot be read.
    """
    trace = config.trace()
    if trace.window is not None:
        windows = trace.windows or min(config.seeds, trace.most_windows())
        return config.model_copy(update={"workload": replace(trace, windows=windows), "seeds": windows})
    jobs = 2 * replace(trace, window=2).most_windows()
    length = min(_JOBS, max(_FEWEST_JOBS, jobs // _WINDOWS))
    windows = min(_WINDOWS, jobs // length)
    if windows < _FEWEST:
        return config.model_copy(update={"seeds": 1})
    return config.model_copy(update={"workload": replace(trace, window=length, windows=windows), "seeds": windows})
