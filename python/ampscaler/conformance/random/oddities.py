"""Strategies for what programs do besides ordinary training: all calls in odd ways, and what other libraries do.

In a template, <o> stands for an optimizer, <p> for a parameter, <on> for a tensor's argument `device`, if it needs one.
"""

from __future__ import annotations

from hypothesis.strategies import DrawFn

from ampscaler.conformance.random.vocabulary import Setting, choose, gradient, number, options, sometimes, tensor

OUTPUTS = (
    "torch.tensor(0.5<on>)",
    "torch.full((2,), 0.5, dtype=torch.float16<on>)",
    "torch.tensor([0.1, 3e38], dtype=torch.float64<on>)",
    "torch.tensor(0.1, dtype=torch.bfloat16<on>)",
    "torch.ones(2, dtype=torch.int64<on>)",
    "[torch.ones(2<on>), (torch.tensor(0.5<on>), [torch.full((1,), 3.0<on>)])]",
    "torch.ones((0,)<on>)",
    "[]",
    "()",
)
#: Lazily scaled, or refused half way: worth walking through the result.
ITERABLES = (
    "(torch.ones(1<on>) for _ in range(2))",
    "{'loss': torch.ones(1<on>)}",
    "[torch.ones(1<on>), 5]",
)
ODD_OUTPUTS = (
    *ITERABLES,
    "torch.ones(2, dtype=torch.complex64<on>)",
    "torch.ones(2<on>).to(torch.float8_e4m3fn)",
    "torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)<on>)",
    "torch.ones(2<on>).as_subclass(Tagged)",
    "torch.ones((), device='meta')",
    "torch.max(torch.ones(2, 2<on>), 0)",
    "<p>",
    "5",
    "None",
    "'ab'",
    "b'ab'",
)
NEW_SCALES = ("16.0", "2.5", "1.0", "torch.tensor(16.0<on>)", "torch.tensor(0.1, dtype=torch.float64<on>)")
ODD_NEW_SCALES = (
    *("0.0", "-1.0", "inf", "nan", "1e39", "1e-46", "3", "True", "'4'", "[4.0]"),
    "torch.tensor(5<on>)",
    "torch.tensor(1e39, dtype=torch.float64<on>)",
    "torch.full((1,), 16.0<on>)",
    "torch.ones(2<on>)",
    "torch.ones(()<on>, requires_grad=True)",
    "torch.ones((), device='meta')",
)
STATES = (
    "{'scale': 8.0, 'growth_factor': 3.0, 'backoff_factor': 0.25, 'growth_interval': 2, '_growth_tracker': 1}",
    "{'scale': 0.5, 'growth_factor': 2.0, 'backoff_factor': 0.5, 'growth_interval': 5, '_growth_tracker': 0}",
)
ODD_STATES = (
    "{}",
    "None",
    "5",
    "{'scale': 4.0, 'growth_factor': 3.0}",
    "{'scale': 4.0, 'growth_factor': 0.1, 'backoff_factor': 7, 'growth_interval': 0, '_growth_tracker': 5.7}",
    "{'scale': 4.0, 'growth_factor': 2.0, 'backoff_factor': 0.5, 'growth_interval': 3, '_growth_tracker': 2**40}",
    "{'scale': 'x', 'growth_factor': 2.0, 'backoff_factor': 0.5, 'growth_interval': 3, '_growth_tracker': 0}",
    "scaler.state_dict() | {'scale': torch.tensor(6.0<on>)}",
    "scaler.state_dict() | {'scale': torch.full((1,), 6.0<on>)}",
)
FLAGS = ("1.0", "0.0", "0.5", "2.0", "nan")
STAGES = ("2", "torch.amp.grad_scaler.OptState.READY", "torch.amp.grad_scaler.OptState.STEPPED")
GUARDS = (
    "torch.no_grad()",
    "torch.inference_mode()",
    "torch.device('<device>')",
    "torch.overrides.BaseTorchFunctionMode()",
    "torch.utils._python_dispatch.TorchDispatchMode()",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
)
GUARDED = ("scaler.step(<o>)", "scaler.unscale_(<o>)", "scaler.update()", "scaler.scale(torch.ones(()<on>))")

#: What every scaler has: kind to templates, one of which is drawn.
PUBLIC = {
    "scale": tuple(f"scaler.scale({output})" for output in OUTPUTS),
    "unscale_": ("scaler.unscale_(<o>)",),
    "step": ("scaler.step(<o>)",),
    "step_with_closure": ("scaler.step(<o>, closure=None)",),
    "update": ("scaler.update()",),
    "update_new": tuple(f"scaler.update({value})" for value in NEW_SCALES),
    "get": ("scaler.get_scale()", "scaler.is_enabled()", "scaler.state_dict()"),
    "set_growth_factor": ("scaler.set_growth_factor(4.0)", "scaler.set_growth_factor(1.5)"),
    "set_backoff_factor": ("scaler.set_backoff_factor(0.25)", "scaler.set_backoff_factor(0.75)"),
    "set_growth_interval": ("scaler.set_growth_interval(1)", "scaler.set_growth_interval(3)"),
    "load_state": tuple(f"scaler.load_state_dict({state})" for state in STATES),
    "save_and_load": ("scaler.load_state_dict(scaler.state_dict())",),
    "new_scaler": ('scaler = Scaler("<device>", init_scale=2.0)',),
    "late_backward": ("loss = scaler.scale((<p> * 2.0).sum())", "loss.backward()"),
    "edit_gradient": ("<p>.grad.mul_(0.5)", "<p>.grad.fill_(inf)", "<p>.grad.zero_()"),
    "learning_rate": ("<o>.param_groups[0]['lr'] = 0.25",),
    "plain_step": ("<o>.step()",),
    "guard": ("with torch.no_grad(): scaler.step(<o>)", "with torch.no_grad(): scaler.unscale_(<o>)"),
}
#: What only torch's scaler and its like are asked, or answer alike.
PRIVATE = {
    "scale_odd": tuple(f"scaler.scale({output})" for output in ODD_OUTPUTS),
    "scale_and_consume": tuple(f"list(scaler.scale({output}))" for output in ITERABLES),
    "step_arguments": (
        "scaler.step(<o>, None)",
        "scaler.step(<o>, lambda: 2.5)",
        "scaler.step(<o>, 1, key=2)",
        "scaler.step(5)",
    ),
    "update_odd": tuple(f"scaler.update({value})" for value in ODD_NEW_SCALES),
    "set_odd": ("scaler.set_growth_factor(0.5)", "scaler.set_backoff_factor(2)", "scaler.set_growth_interval(2.5)"),
    "load_odd": tuple(f"scaler.load_state_dict({state})" for state in ODD_STATES),
    "pickle": ("scaler = pickle.loads(pickle.dumps(scaler))", "pickle.loads(pickle.dumps(scaler, 2)).state_dict()"),
    "copy": ("other = copy.copy(scaler)", "scaler = copy.deepcopy(scaler)", "scaler = copy.copy(scaler)"),
    "swap": ("scaler, other = other, scaler", "scaler.load_state_dict(other.state_dict())"),
    "share": ("other._scale, other._growth_tracker = scaler._scale, scaler._growth_tracker",),
    "check_inf": ("scaler._check_inf_per_device(<o>)",),
    "found_inf": ("scaler._found_inf_per_device(<o>)",),
    # They raise AttributeError on a disabled scaler of torch's.
    "get_factors": ("scaler.get_growth_factor()", "scaler.get_backoff_factor()", "scaler.get_growth_interval()"),
    "private_getters": (
        "scaler._get_scale_async()",
        "scaler._get_growth_tracker()",
        "scaler._check_scale_growth_tracker('me')",
    ),
    "lazy_init": ("scaler._lazy_init_scale_growth_tracker('<device>')",),
    "unscale_grads": (
        "scaler._unscale_grads_(<o>, torch.tensor(0.5<on>), torch.tensor(0.0<on>), False)",
        "scaler._unscale_grads_(<o>, torch.tensor(0.1<on>), torch.tensor(0.0<on>), True)",
        "scaler._unscale_grads_(<o>, torch.tensor(1.0<on>), torch.tensor(7.0<on>), True)",
        "scaler._unscale_grads_(<o>, torch.tensor([0.5]<on>), torch.zeros(1<on>), True)",
        "scaler._unscale_grads_(<o>, torch.tensor(0.5, dtype=torch.float64<on>), torch.tensor(0.0<on>), True)",
        "scaler._unscale_grads_(<o>, torch.ones(2<on>), torch.tensor(0.0<on>), True)",
        "scaler._unscale_grads_(<o>, torch.tensor(inf<on>), torch.tensor(0.0, dtype=torch.float16<on>), True)",
        "scaler._unscale_grads_(<o>, torch.ones((), device='meta'), torch.tensor(0.0<on>), True)",
    ),
    "set_scale": (
        "scaler._scale = torch.tensor(128.0<on>)",
        "scaler._scale = torch.full((1,), 64.0<on>)",
        "scaler._scale = torch.tensor(64.0, dtype=torch.float64<on>)",
        "scaler._scale = None",
        "scaler._scale.fill_(0.1)",
        "scaler._scale.zero_()",
        "scaler._growth_tracker = None",
        "scaler._growth_tracker.fill_(2**31 - 1)",
    ),
    "set_attribute": (
        "scaler._init_scale = 32",
        "scaler._init_growth_tracker = 2",
        "scaler._growth_factor = 1.25",
        "scaler.mine = 5",
    ),
    "toggle": ("scaler._enabled = not scaler._enabled",),
    "set_stage": tuple(f"scaler._per_optimizer_states[id(<o>)]['stage'] = {stage}" for stage in STAGES),
    "set_flag": tuple(
        f"scaler._per_optimizer_states[id(<o>)]['found_inf_per_device'] = {{torch.device('<device>'): {value}}}"
        for value in (*(f"torch.tensor({flag}<on>)" for flag in FLAGS), "torch.ones(1<on>)")
    ),
    "drop_entries": ("scaler._per_optimizer_states.clear()", "scaler._per_optimizer_states.pop(id(<o>))"),
    "patch_scaler": (
        "scaler._unscale_grads_ = lambda o, inv, found, half, old=scaler._unscale_grads_: old(o, inv, found, True)",
        "scaler._maybe_opt_step = lambda optimizer, state, *args: calls.append(('maybe', state['stage'].name, args))",
        "scaler.get_scale = lambda: 5.0",
        "scaler.unscale_ = lambda optimizer: calls.append('unscale_')",
    ),
    "patch_optimizer": (
        "<o>.step = lambda *args, **kwargs: ('patched', args, kwargs)",
        "<o>._step_supports_amp_scaling = True",
        "<o>._step_supports_amp_scaling = False",
        "<o>.register_step_post_hook(lambda *_: calls.append('<o>'))",
    ),
    "optimizer_attributes": (
        "<o>.grad_scale = torch.tensor(2.0<on>)",
        "<o>.grad_scale = None",
        "<o>.found_inf = torch.zeros(()<on>)",
        "del <o>.grad_scale",
        "del <o>.found_inf",
    ),
    "groups": (
        "<o>.add_param_group({'params': [<p>]})",
        "<o>.param_groups.append({'params': (<p> for _ in range(2))})",
    ),
    "drop_gradient": ("<p>.grad = None", "<o>.zero_grad()", "<o>.zero_grad(set_to_none=False)"),
    "freeze": ("<p>.requires_grad_(False)", "<p>.data = <p>.data * 0.5"),
    "guard_odd": tuple(f"with {guard}: {call}" for guard in GUARDS for call in GUARDED),
}
#: Kinds whose statements are drawn by functions.
GRADIENT = "gradient"
CUSTOM_SCALE = "scale_numbers"


def kinds(private: bool) -> tuple[str, ...]:
    """All kinds of odd statements."""
    return (GRADIENT, CUSTOM_SCALE, *PUBLIC, *(PRIVATE if private else ()))


def draw_odd(draw: DrawFn, setting: Setting) -> tuple[str, str]:
    """A kind and a statement of it."""
    kind = choose(draw, kinds(setting.private))
    if kind == GRADIENT:
        parameter = choose(draw, setting.parameters)
        return kind, f"{parameter.name}.grad = {gradient(draw, parameter, setting)}"
    if kind == CUSTOM_SCALE:
        values = tensor(draw, choose(draw, ((2,), (), (33,))), "float32", setting.device, plain=not setting.private)
        return kind, f"scaler.scale({values})"
    if kind == "update_new" and setting.private and sometimes(draw, 30):
        return kind, f"scaler.update({number(draw)})"
    return kind, _filled(draw, choose(draw, (PUBLIC | PRIVATE)[kind]), setting)


def _filled(draw: DrawFn, template: str, setting: Setting) -> str:
    text = template.replace("<on>", options(setting.device)).replace("<device>", setting.device)
    if "<o>" in text:
        text = text.replace("<o>", choose(draw, setting.optimizers)[0])
    return text.replace("<p>", choose(draw, setting.parameters).name) if "<p>" in text else text
