"""outside_graphs: methods that torch.compile neither traces nor compiles, at no cost where nothing is compiled.

torch's own decorator for it takes 10 us of a call whose code has left the caches, as long as a clip of 200 small
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._compile import _disable_dynamo

Method = TypeVar("Method", bound=Callable[..., Any])


def outside_graphs(method: Method) -> Method:
    """The method, and all that it calls, run as they are: what torch._dynamo.disable does by a wrapper.

    torch.compile skips torch's own stateful scaler code, but not what that code calls: traced, methods would stop at
    _C and could be run on stand-ins for tensors. The public decorator also loads the compiler, which takes as long as
    torch itself, when a module is imported.
    """
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:  # these are names of torch's own, which may change them
        return _disable_dynamo(method)  # type: ignore[return-value]
    # Its frames are left alone where they run, and it is not inlined where a caller is traced.
    set_code_exec_strategy(method.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    method._torchdynamo_disable = True  # type: ignore[attr-defined]
    return method
