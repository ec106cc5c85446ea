"""Random programs: a list of (operation, arguments), all plain values, that any world can run."""

import copy
import pickle
import random
import warnings

import torch

from .snapshot import of_value, of_world, repr_without_ids
from .world import World, plan_world

NEW_SCALES = {
    "float": lambda: 2.0,
    "zero": lambda: 0.0,
    "inf": lambda: float("inf"),
    "huge": lambda: 1e39,
    "int": lambda: 3,
    "tensor": lambda: torch.full((), 16.0),
    "int_tensor": lambda: torch.full((), 5),
    "one_element": lambda: torch.full((1,), 16.0),
    "two_elements": lambda: torch.ones(2),
    "leaf": lambda: torch.ones((), requires_grad=True),
}
OUTPUTS = {
    "loss": lambda: torch.full((), 0.5),
    "half": lambda: torch.full((2,), 0.5, dtype=torch.float16),
    "double": lambda: torch.full((2,), 0.5, dtype=torch.float64),
    "list": lambda: [torch.ones(2), (torch.ones(()), [torch.full((1,), 3.0)])],
    "empty": list,
    "generator": lambda: (torch.ones(1) for _ in range(2)),
    "number": lambda: 5,
    "mixed": lambda: [torch.ones(1), 5],
}


def set_entry(scaler, optimizer, key, value):
    scaler._per_optimizer_states[id(optimizer)][key] = value


def allow_half(scaler):
    original = scaler._unscale_grads_
    scaler._unscale_grads_ = lambda optimizer, inv_scale, found_inf, allow_fp16: original(
        optimizer, inv_scale, found_inf, True
    )


def reload(world, transform):
    world.scaler = transform(world.scaler)


# Every operation gets the world, an optimizer, its index, and a random number generator that both worlds seed alike.
OPERATIONS = {
    "set_gradients": lambda w, o, i, r: w.set_gradients(i, r.randrange(2**31)),
    "scale": lambda w, o, i, r: w.scaler.scale(OUTPUTS[r.choice(list(OUTPUTS))]()),
    "scale_loss": lambda w, o, i, r: w.scaler.scale(torch.ones(())),
    "unscale_": lambda w, o, i, r: w.scaler.unscale_(o),
    "step": lambda w, o, i, r: w.scaler.step(o),
    "step_closure": lambda w, o, i, r: w.scaler.step(o, closure=None),
    "step_positional": lambda w, o, i, r: w.scaler.step(o, None),
    "update": lambda w, o, i, r: w.scaler.update(),
    "update_new": lambda w, o, i, r: w.scaler.update(NEW_SCALES[r.choice(list(NEW_SCALES))]()),
    "check_inf": lambda w, o, i, r: w.scaler._check_inf_per_device(o),
    "found_inf": lambda w, o, i, r: w.scaler._found_inf_per_device(o),
    "unscale_grads": lambda w, o, i, r: w.scaler._unscale_grads_(
        o, torch.full((), 0.5), torch.zeros(()), r.random() < 0.5
    ),
    "unscale_odd": lambda w, o, i, r: w.scaler._unscale_grads_(
        o, torch.full((1,), 0.5, dtype=torch.float64), torch.zeros(1), True
    ),
    "getters": lambda w, o, i, r: [
        w.scaler.get_scale(),
        w.scaler.get_growth_factor(),
        w.scaler.get_backoff_factor(),
        w.scaler.get_growth_interval(),
        w.scaler._get_growth_tracker(),
        w.scaler._get_scale_async(),
        w.scaler.is_enabled(),
    ],
    "set_interval": lambda w, o, i, r: w.scaler.set_growth_interval(r.choice([1, 2, 2.5])),
    "set_factors": lambda w, o, i, r: (
        w.scaler.set_growth_factor(r.choice([4.0, 0.5])),
        w.scaler.set_backoff_factor(r.choice([0.25, 2])),
    ),
    "save_load": lambda w, o, i, r: w.scaler.load_state_dict(w.scaler.state_dict()),
    "load_partial": lambda w, o, i, r: w.scaler.load_state_dict({"scale": 4.0, "growth_factor": 3.0}),
    "load_empty": lambda w, o, i, r: w.scaler.load_state_dict({}),
    "pickle": lambda w, o, i, r: reload(w, lambda s: pickle.loads(pickle.dumps(s))),
    "deepcopy": lambda w, o, i, r: reload(w, copy.deepcopy),
    "copy": lambda w, o, i, r: reload(w, copy.copy),
    "floor": lambda w, o, i, r: setattr(w.scaler, "_scale", torch.tensor(128.0)),
    "shape_one": lambda w, o, i, r: setattr(w.scaler, "_scale", torch.full((1,), 64.0)),
    "forget": lambda w, o, i, r: setattr(w.scaler, "_scale", None),
    "toggle": lambda w, o, i, r: setattr(w.scaler, "_enabled", not w.scaler._enabled),
    "foreign_stage": lambda w, o, i, r: set_entry(w.scaler, o, "stage", 2),
    "foreign_flag": lambda w, o, i, r: set_entry(
        w.scaler,
        o,
        "found_inf_per_device",
        {torch.device("cpu"): torch.full((), r.choice([0.0, 0.5, 2.0]))},
    ),
    "allow_half": lambda w, o, i, r: allow_half(w.scaler),
    "grad_scale": lambda w, o, i, r: setattr(o, "grad_scale", r.choice([None, 2.0])),
    "patch_step": lambda w, o, i, r: setattr(o, "step", lambda *args: ("patched", args)),
    "drop_found_inf": lambda w, o, i, r: setattr(o, "found_inf", torch.zeros(())),
}
# What training programs do most.
COMMON = ["set_gradients", "scale_loss", "unscale_", "step", "step", "update", "update"]


def make_program(seed, length=24):
    """A plan for the world, and operations as (name, index of the optimizer, seed)."""
    rng = random.Random(seed)
    plan = plan_world(rng)
    indices = range(len(plan["optimizers"]))
    operations = [("set_gradients", index, rng.randrange(2**31)) for index in indices]
    operations.append(("scale_loss", 0, 0))
    for _ in range(length):
        name = rng.choice(COMMON) if rng.random() < 0.6 else rng.choice(list(OPERATIONS))
        operations.append((name, rng.choice(indices), rng.randrange(2**31)))
    return plan, operations


def outcome(call):
    """Value or exception, and the warnings, of a call."""
    torch.set_warn_always(True)  # else torch's own C++ warnings appear in the first world only
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = ("value", of_value(call()))
        except Exception as error:
            result = ("error", type(error).__name__, repr_without_ids(error))
    return result, [(w.category.__name__, repr_without_ids(w.message)) for w in caught]


def run(scaler_class, plan, operations, seed):
    """Yields what each operation did and what the world looked like after it."""
    world = World(scaler_class, plan, seed)
    yield "construct", outcome(world.make_scaler), None
    if world.scaler is None:
        return
    for name, index, operation_seed in operations:
        rng = random.Random(operation_seed)
        call = OPERATIONS[name]
        result = outcome(lambda: call(world, world.optimizers[index], index, rng))
        yield f"{name} on optimizer {index}", result, of_world(world)
