"""The trace: what the engine writes and everything else reads."""

from specviz.trace.schema import TraceMeta
from specviz.trace.store import TraceError, load_trace
from specviz.trace.trace import Trace

__all__ = ["Trace", "TraceError", "TraceMeta", "load_trace"]
