"""The trace: what the engine writes and everything else reads."""

from specviz.trace.schema import TraceMeta
from specviz.trace.store import TraceError
from specviz.trace.trace import Trace, load_trace, need_trace

__all__ = ["Trace", "TraceError", "TraceMeta", "load_trace", "need_trace"]
