"""A training step under torch.compile gives what the eager one gives: parameters, scale, per-optimizer entries."""

import pytest
import torch

import ampscaler

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "fused_adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
}


@torch._dynamo.disable
def record_entries(scaler, optimizer, log):
    """Appends the stage and the flags that the scaler keeps for the optimizer."""
    entry = scaler._per_optimizer_states[id(optimizer)]
    flags = {str(device): flag.item() for device, flag in entry["found_inf_per_device"].items()}
    log.append((entry["stage"].name, flags, hasattr(optimizer, "grad_scale")))


class Training:
    """Four steps of a small model, the second with an overflow."""

    def __init__(self, make_scaler, make_optimizer, explicit_unscale):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = make_optimizer(self.model.parameters())
        self.scaler = make_scaler("cpu", init_scale=1024.0, growth_interval=2)
        self.explicit_unscale = explicit_unscale
        self.log = []

    def step(self, inputs):
        self.optimizer.zero_grad()
        self.scaler.scale(self.model(inputs).square().mean()).backward()
        if self.explicit_unscale:
            self.scaler.unscale_(self.optimizer)
            record_entries(self.scaler, self.optimizer, self.log)
        self.scaler.step(self.optimizer)
        record_entries(self.scaler, self.optimizer, self.log)
        self.scaler.update()

    def run(self, backend):
        torch._dynamo.reset()
        step = self.step if backend is None else torch.compile(self.step, backend=backend)
        for i in range(4):
            step(torch.full((3, 4), float("inf") if i == 1 else 1.0 + i))
        return self

    def result(self):
        weights = [parameter.detach().clone() for parameter in self.model.parameters()]
        return weights, self.scaler.state_dict(), self.log


def assert_same(ours, reference):
    assert all(torch.equal(a, b) for a, b in zip(ours[0], reference[0], strict=True))
    assert ours[1:] == reference[1:]


@pytest.mark.parametrize("explicit_unscale", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_equals_the_eager_one(optimizer, backend, explicit_unscale):
    def train(scaler, backend):
        return Training(scaler, OPTIMIZERS[optimizer], explicit_unscale).run(backend).result()

    eager = train(ampscaler.GradScaler, None)
    compiled = train(ampscaler.GradScaler, backend)
    assert_same(eager, train(torch.amp.GradScaler, None))
    assert_same(compiled, train(torch.amp.GradScaler, backend))
    # torch compiles Adam's own arithmetic into other roundings, with any scaler; all else is equal.
    for ours, reference in zip(compiled[0], eager[0], strict=True):
        torch.testing.assert_close(ours, reference)
    assert compiled[1:] == eager[1:]


@pytest.mark.parametrize("fused", [False, True])
def test_a_compiled_step_of_the_cpp_class_equals_torchs_compiled_step(fused):
    def train(scaler_class, backend):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        scaler = scaler_class("cpu", init_scale=1024.0, growth_interval=2)
        results = []

        def step(inputs):
            optimizer.zero_grad()
            scaler.scale(model(inputs).square().mean()).backward()
            result = scaler.step(optimizer)
            scaler.update()
            return result

        run = step if backend is None else torch.compile(step, backend=backend)
        for value in (1.0, float("inf"), 3.0, 4.0):
            results.append(run(torch.full((3, 4), value)))
        return ([parameter.detach() for parameter in model.parameters()], scaler.state_dict()), results

    # torch's own compiled SGD rounds differently from its eager one in some versions, with any scaler or none.
    for backend in (None, "eager"):
        ours, results = train(ampscaler.AmpScaler, backend)
        assert_same(ours, train(torch.amp.GradScaler, backend)[0])
        assert [result.applied() for result in results] == [True, False, True, True]


def test_the_stateless_functions_are_traced_whole():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def norm_of_unscaled(gradients, scale):
        unscaled = ampscaler.functional.unscale_gradients(gradients, scale)
        return unscaled, ampscaler.functional.global_grad_norm(unscaled)

    scale = torch.full((), 2.0)
    unscaled, norm = norm_of_unscaled([torch.tensor([6.0, 8.0]), None], scale)
    assert torch.equal(unscaled[0], torch.tensor([3.0, 4.0]))
    assert unscaled[1] is None
    assert norm.item() == 5.0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_operators_are_traced_whole(backend):
    @torch.compile(fullgraph=True, backend=backend)
    def step(gradients, found_inf, inv_scale, scale, tracker):
        torch.ops.ampscaler.unscale_(gradients, found_inf, inv_scale)
        torch.ops.ampscaler.update_scale_(scale, tracker, found_inf, 2.0, 0.5, 1)

    gradients = [torch.full((3,), 8.0), torch.tensor([float("nan")])]
    found_inf, scale = torch.zeros(()), torch.full((), 4.0)
    tracker = torch.zeros((), dtype=torch.int32)
    step(gradients, found_inf, torch.full((), 0.25), scale, tracker)
    assert torch.equal(gradients[0], torch.full((3,), 2.0))
    assert (found_inf.item(), scale.item(), tracker.item()) == (1.0, 2.0, 0)


def test_nothing_of_our_methods_is_compiled():
    """As many frames as where torch's own decorator keeps the method out."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1, fused=True)

    def count_frames(outside):
        scaler = ampscaler.GradScaler("cpu", init_scale=4.0)
        scaler.scale(parameter.sum()).backward()
        clip = torch._dynamo.disable(scaler.clip_grad_norm_) if outside else scaler.clip_grad_norm_
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        norm = torch.compile(lambda: clip(optimizer, 1.0) + 1, backend="eager")()
        parameter.grad = None
        return norm, torch._dynamo.utils.counters["frames"]["total"]

    norm, frames = count_frames(outside=False)
    torch.testing.assert_close(norm, torch.tensor(3.0).sqrt() + 1)
    assert (norm, frames) == count_frames(outside=True)
    assert frames > 0
