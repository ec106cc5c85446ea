"""One scaler with its optimizers and parameters: built twice from the same plan, once per scaler class."""

import random

import torch

DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16]
SHAPES = [(3,), (2, 3), (0,), (), (33,)]
LAYOUTS = [
    "dense",
    "dense",
    "dense",
    "transposed",
    "sliced",
    "expanded",
    "sparse",
    "none",
    "shared",
]


class Raising(torch.optim.SGD):
    """Raises on every second call."""

    calls = 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls % 2:
            raise RuntimeError("this optimizer raises now and then")
        return super().step(closure)


class KeywordVariant(torch.optim.SGD):
    """The older protocol: gets the scaler itself and does the work of unscaling."""

    _step_supports_amp_scaling = True

    def step(self, closure=None, *, grad_scaler=None):
        found = sum(flag.item() for flag in grad_scaler._check_inf_per_device(self).values())
        if found == 0:
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    parameter.data.sub_(parameter.grad.data)
        return found


class Duck:
    """Only what torch's scaler needs of an optimizer."""

    def __init__(self, parameters):
        self.param_groups = [{"params": parameters}]

    def step(self, *args):
        return ("stepped", args)


class Lazy(Duck):
    """Its parameters can be walked once per reading."""

    def __init__(self, parameters):
        self.parameters = parameters

    @property
    def param_groups(self):
        return ({"params": iter(half)} for half in (self.parameters[:1], self.parameters[1:]))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_groups": lambda p: torch.optim.SGD([{"params": p[:1]}, {"params": p[1:], "lr": 0.5}], lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "fused_sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "fused_adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "raising": lambda p: Raising(p, lr=0.1),
    "keyword": lambda p: KeywordVariant(p, lr=0.1),
    "duck": Duck,
    "lazy": Lazy,
    "not_a_tensor": lambda p: Duck([*p, "no tensor"]),
    "twice": lambda p: Duck([*p, p[0]]),
}


def plan_world(rng: random.Random) -> dict:
    """What to build, as plain values."""
    optimizers = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        count = rng.randint(1, 4)
        parameters = [(rng.choice(SHAPES), rng.choice(DTYPES)) for _ in range(count)]
        if rng.random() < 0.1:
            parameters.append(((4,), torch.float16))
        optimizers.append((rng.choice(list(OPTIMIZERS)), parameters))
    scaler = {
        "device": rng.choice(["cpu", "cpu", "cpu", "cpu:0", torch.device("cpu"), "xpu", "cuda"]),
        "init_scale": rng.choice([65536.0, 8.0, 3000.0, 2.0**-148, 0.0, float("inf"), 4, 0.1, 1e39]),
        "growth_factor": rng.choice([2.0, 2.0, 1.5, 3, 1.0]),
        "backoff_factor": rng.choice([0.5, 0.5, 0.75, 0.0, -1.0, 1.0]),
        "growth_interval": rng.choice([1, 2, 3, 0, 2000]),
        "enabled": rng.random() > 0.1,
    }
    return {"scaler": scaler, "optimizers": optimizers}


def make_gradient(rng: random.Random, parameter: torch.Tensor, layout: str):
    """A gradient with that layout; now and then with a non-finite element."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    shape = tuple(parameter.shape)
    values = torch.randn(shape, generator=generator).mul_(rng.choice([1.0, 1e-3, 1e4]))
    if values.numel() and rng.random() < 0.15:
        planted = rng.choice([float("inf"), float("-inf"), float("nan")])
        values.view(-1)[rng.randrange(values.numel())] = planted
    values = values.to(parameter.dtype)
    if layout == "none":
        return None
    if layout == "transposed" and len(shape) == 2:
        return values.t().contiguous().t()
    if layout == "sliced" and shape:
        return torch.stack([values, values], dim=-1)[..., 0]
    if layout == "expanded" and shape == (3,):
        return values[:1].expand(3)
    if layout == "sparse" and shape == (3,):
        indices = torch.tensor([[0, 0, 2]])
        return torch.sparse_coo_tensor(indices, values, shape)
    return values


class World:
    """A scaler of the given class and optimizers, as planned."""

    def __init__(self, scaler_class, plan, seed):
        generator = torch.Generator().manual_seed(seed)
        self.parameters = [
            [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape, dtype in parameters]
            for _, parameters in plan["optimizers"]
        ]
        self.optimizers = [
            OPTIMIZERS[kind](parameters)
            for (kind, _), parameters in zip(plan["optimizers"], self.parameters, strict=True)
        ]
        self.scaler_class = scaler_class
        self.arguments = plan["scaler"]
        self.scaler = None

    def make_scaler(self):
        self.scaler = self.scaler_class(**self.arguments)

    def set_gradients(self, index, seed):
        rng = random.Random(seed)
        previous = None
        for parameter in self.parameters[index]:
            layout = rng.choice(LAYOUTS)
            if layout == "shared" and previous is not None and previous.shape == parameter.shape:
                same_kind = previous.dtype == parameter.dtype and previous.layout == torch.strided
                parameter.grad = previous if same_kind else None
            else:
                parameter.grad = make_gradient(rng, parameter, layout)
            previous = parameter.grad
