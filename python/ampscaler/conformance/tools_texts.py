"""The texts of torch's errors and warnings, as callers match on them: each is written here once."""

from __future__ import annotations

import re

# ---- constructor, scale ----
GROWTH = "The growth factor must be > 1.0."
BACKOFF = "The backoff factor must be < 1.0."
#: Two blanks between the sentences.
DISABLING = "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
TRACKER_BEFORE_SCALE = "_growth_tracker initialized before _scale"
TOO_LARGE = "value cannot be converted to type float without overflow"
NO_TENSORS = "outputs must be a Tensor or an iterable of Tensors"
MODIFIED = re.compile(
    r"^one of the variables needed for gradient computation has been modified by an inplace operation"
)
INFERENCE = re.compile(r"^Inplace update to inference tensor outside InferenceMode is not allowed")

# ---- unscale_ ----
UNSCALED_TWICE = "unscale_() has already been called on this optimizer since the last update()."
UNSCALED_LATE = "unscale_() is being called after step()."
FLOAT16 = "Attempting to unscale FP16 gradients."
ONE_PLACE = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)

# ---- step ----
CLOSURE = "Closure use is not currently supported if GradScaler is enabled."
STEPPED_TWICE = "step() has already been called since the last update()."
NOTHING_TO_STEP_BY = "No inf checks were recorded for this optimizer."
PASSING_ITSELF = (
    "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future "
    "GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and let the optimizer "
    "use them directly."
)

# ---- update, state, pickle ----
NOTHING_TO_UPDATE_BY = "No inf checks were recorded prior to update."
BAD_NEW_SCALE = (
    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
)
NO_ROOM_FOR_ONE = "output with shape [] doesn't match the broadcast shape [1]"
EMPTY_STATE = "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
PICKLED_MIDWAY = (
    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
)


def never_scaled(method: str, attribute: str = "_scale") -> str:
    """The text of a method that needs a scale() before it. Two blanks between the sentences."""
    return (
        f"Attempted {method} but {attribute} is None.  This may indicate your script did not use "
        "scaler.scale(loss or outputs) earlier in the iteration."
    )


def no_tensor(type_name: str) -> str:
    """The text for a parameter that is no tensor, but of the type with this name."""
    return f"expected param to be torch.Tensor, got {type_name}"


def no_attribute(class_name: str, attribute: str) -> str:
    """Python's text for an attribute that an object of this class does not have."""
    return f"'{class_name}' object has no attribute '{attribute}'"


def no_kernel(device_type: str, dtype_name: str) -> str:
    """The text of torch's unscale operator for gradients of a dtype that it has no kernel for."""
    return f"\"_amp_foreach_non_finite_check_and_unscale_{device_type}\" not implemented for '{dtype_name}'"
