"""The operators torch.ops.ampscaler.* over lists of gradients, and the names of what they return.

    stats, factors = torch.ops.ampscaler.grad_stats(grads, scale, max_norm=1.0)
    norm = stats[ampscaler.ops.STATS.index("norm")]

None waits for the device, except that coalescing a sparse CUDA gradient does. All but find_nonfinite and unscale_
relate stored gradients to true ones by

    true gradient = stored gradient / (scale * divisor * user_scale)

where `divisor` is the weight of accumulated micro-batches and `user_scale` the user's own optimizer.grad_scale; both
are optional. Gradients are tensors of one device: float16, bfloat16, float32, float64 and complex ones in one list, of
any strides, sparse COO too (coalesced in place before they are written), none twice.

    grad_stats(grads, scale, *, divisor, user_scale, norm_type, max_norm, max_norm_tensor, eps, accumulate)
        Only reads: finite, norm, largest magnitude, counts, clip coefficient. The sum of the 2-norm cannot overflow; a
        norm beyond float64 reads inf. `accumulate` is a contiguous int64 tensor [141], zeros at first: the call adds
        its sums, and the results are those of all calls. Two such states merge by addition, the last word by maximum.
    unscale_with_stats_(grads, scale, *, ...the same...)
        The same while every gradient is multiplied by 1 / (scale * divisor).
    unscale_clamp_(grads, scale, clip_value, *, divisor, user_scale)
        The same, and clamped to [-clip_value, clip_value].
    scale_grads_(grads, factor, found_inf)
        Multiplies, unless the factor is 1 or found_inf is set: then values stay.
    find_nonfinite(grads)
        int64 [n, 3]: index of the first inf or NaN or -1, its kind (0 none, 1 inf, 2 NaN), how many there are.
    grad_norms(grads, scale, norm_type)
        float32 [n]: the norm of each; for 0 its elements that are not 0 (in grad_stats: tensors with such an element).
    merge_stats(stats, *, norm_type, max_norm, max_norm_tensor, eps)
        The `stats` of several lists of gradients as those of one list. Combine the lists' own found_inf with it, by
        maximum: a scale that cannot be divided by does not show in `stats`.
    step_factors(found_inf, *, scale, divisor, user_scale, clip_coefficient)
        float32 [found_inf, grad_scale]: what a fused optimizer takes for its step.

csrc/include/ampscaler/ops.h has the contracts in full.
"""

from ampscaler import _C

#: Slots of the float64 vector `stats`.
STATS: tuple[str, ...] = tuple(_C.stats_names())

#: Slots of the float32 vector `factors`.
FACTORS: tuple[str, ...] = tuple(_C.factor_names())

__all__ = ["FACTORS", "STATS"]
