"""ampscaler.functional: the known values, None, autograd, bad numbers, agreement with the installed torch."""

import pytest
import torch

from ampscaler import functional

INF = float("inf")


def test_known_values():
    unscaled = functional.unscale_gradients([torch.tensor([6.0, 8.0]), None], 2.0)
    assert torch.equal(unscaled[0], torch.tensor([3.0, 4.0]))
    assert unscaled[1] is None
    norm = functional.global_grad_norm([torch.tensor([3.0, 4.0]), None, torch.tensor([12.0])])
    assert norm.item() == 13.0
    assert (norm.dim(), norm.dtype) == (0, torch.float32)
    assert functional.global_grad_norm([]).item() == 0.0


def test_a_finite_plan():
    plan = functional.plan_mixed_precision_update([torch.tensor([6.0, 8.0]), None], 2, 2.5)
    assert list(plan) == [
        "gradients",
        "grad_norm",
        "clip_coefficient",
        "should_step",
        "next_scale",
        "reason",
    ]
    assert torch.equal(plan["gradients"][0], torch.tensor([1.5, 2.0]))
    assert plan["gradients"][1] is None
    assert plan["grad_norm"].item() == 5.0
    assert plan["clip_coefficient"] == pytest.approx(0.5, abs=1e-12)
    assert plan["should_step"] is True
    assert plan["next_scale"] == 2.0
    assert plan["reason"] == "finite_gradient"


def test_an_overflow_plan():
    plan = functional.plan_mixed_precision_update([torch.tensor([INF]), torch.tensor([2.0])], 1024, 1.0)
    assert plan["should_step"] is False
    assert plan["next_scale"] == 512.0
    assert plan["grad_norm"].item() == INF
    assert plan["clip_coefficient"] == 0.0
    assert plan["gradients"][1].item() == 2.0 / 1024
    assert plan["reason"] == "non_finite_gradient"


def test_the_next_scale_follows_the_backoff_factor():
    plan = functional.plan_mixed_precision_update([torch.tensor([float("nan")])], 1024, 1.0, 0.25)
    assert plan["next_scale"] == 256.0


def test_values_are_those_of_a_division():
    scaled = torch.randn(1000)
    for scale in (3000.0, torch.full((), 3000.0)):
        assert torch.equal(functional.unscale_gradients([scaled], scale)[0], scaled / 3000.0)


def test_gradients_flow_through():
    scaled = torch.tensor([6.0, 8.0], requires_grad=True)
    norm = functional.global_grad_norm(functional.unscale_gradients([scaled], 2.0))
    norm.backward()
    assert torch.allclose(scaled.grad, torch.tensor([0.3, 0.4]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_the_norm_accumulates_in_double(dtype):
    gradient = torch.full((4096,), 100.0, dtype=dtype)
    assert functional.global_grad_norm([gradient]).item() == 6400.0


def test_the_norm_of_a_sparse_gradient_sums_duplicates_first():
    gradient = torch.sparse_coo_tensor([[0, 0]], torch.tensor([1.5, 1.5]), (2,))
    assert functional.global_grad_norm([gradient, torch.tensor([4.0])]).item() == 5.0


@pytest.mark.parametrize("scale", [0, 0.0, -1.0, -INF])
def test_a_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="^scale must be positive$"):
        functional.unscale_gradients([torch.ones(1)], scale)
    with pytest.raises(ValueError, match="^scale must be positive$"):
        functional.plan_mixed_precision_update([torch.ones(1)], scale, 1.0)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("nan")])
def test_max_norm_must_be_positive(max_norm):
    with pytest.raises(ValueError, match="^max_norm must be positive$"):
        functional.plan_mixed_precision_update([torch.ones(1)], 1.0, max_norm)


@pytest.mark.parametrize("scale", [INF, float("nan")])
def test_a_scale_must_be_finite(scale):
    with pytest.raises(ValueError, match="scale must be finite"):
        functional.unscale_gradients([torch.ones(1)], scale)


def test_a_scale_tensor_must_have_one_element():
    with pytest.raises(ValueError, match="scale: expected a tensor of 1 element"):
        functional.unscale_gradients([torch.ones(1)], torch.ones(2))


def test_a_generator_is_walked_once():
    assert functional.unscale_gradients((t for t in [torch.ones(1)]), 2.0)[0].item() == 0.5
    assert functional.global_grad_norm(t for t in [torch.ones(1)]).item() == 1.0
    assert functional.plan_mixed_precision_update((t for t in [torch.ones(1)]), 2.0, 1.0)["should_step"]


def test_other_types_are_refused_by_name():
    text = r"scaled\[1\]: expected a torch.Tensor or None, got int"
    for call in (functional.unscale_gradients, lambda g, s: functional.plan_mixed_precision_update(g, s, 1.0)):
        with pytest.raises(TypeError, match=text):
            call([None, 3], 2.0)
    with pytest.raises(TypeError, match="scale: expected a float or a tensor, got NoneType"):
        functional.unscale_gradients([torch.ones(1)], None)


def test_a_conjugated_gradient_has_a_norm():
    assert functional.global_grad_norm([torch.tensor([3.0 + 4.0j]).conj()]).item() == 5.0


def test_inputs_are_not_touched():
    scaled = torch.tensor([6.0, 8.0])
    functional.plan_mixed_precision_update([scaled], 2.0, 0.1)
    assert torch.equal(scaled, torch.tensor([6.0, 8.0]))


def test_the_functions_agree_with_the_installed_torch():
    report = functional.check_amp_framework_conformance()
    assert report["status"] == "pass"
    assert report["versions"]["torch"] == torch.__version__
    assert report["checks"] == dict.fromkeys(report["checks"], True)


def test_the_conformance_check_can_fail(monkeypatch):
    original = functional.plan_mixed_precision_update
    wrong = lambda *args: original(*args) | {"next_scale": 1.0}  # noqa: E731
    monkeypatch.setattr(functional, "plan_mixed_precision_update", wrong)
    report = functional.check_amp_framework_conformance()
    assert report["status"] == "fail"
    assert not report["checks"]["next_scale_equal"]
