"""Programs that keep to the CPU never call CUDA: whatever calls it calls the driver, and here finds one of ours."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="this torch has no CUDA to call")

# Stands in for the driver's library: the functions by which the runtime begins. It tells that one was called.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static int refuse(const char* name) {
  FILE* file = fopen(getenv("CALLS_FILE"), "a");
  fprintf(file, "%s\\n", name);
  fclose(file);
  return 100;  // CUDA_ERROR_NO_DEVICE
}
int cuInit(unsigned flags) { return refuse("cuInit"); }
int cuDriverGetVersion(int* version) { *version = 13020; return refuse("cuDriverGetVersion"); }
int cuGetProcAddress(const char* name, void** function) { return refuse(name); }
int cuGetProcAddress_v2(const char* name, void** function) { return refuse(name); }
"""

# Without backward() and Adam.step(), which ask how many CUDA devices there are.
USE = """
import torch, ampscaler
ops = torch.ops.ampscaler
scale, flag, tracker = torch.full((), 4.0), torch.zeros(()), torch.zeros((), dtype=torch.int32)
grads = [torch.ones(3), torch.ones(4, 4, dtype=torch.bfloat16)[:, ::2], torch.eye(3).to_sparse()]
words = torch.zeros(141, dtype=torch.int64)
stats, factors = ops.grad_stats(grads, scale, max_norm=1.0, accumulate=words)
ops.unscale_with_stats_(grads, scale, divisor=torch.full((), 2))
ops.unscale_clamp_(grads, scale, 1.0)
ops.scale_grads_(grads, factors[2], flag)
ops.find_nonfinite(grads), ops.grad_norms(grads, scale), ops.merge_stats([stats]), ops.step_factors(flag, scale=scale)
ops.unscale_(grads[:2], flag, scale)
ops.update_scale_(scale, tracker, flag, 2.0, 0.5, 1)
ops.advance_scale_(scale, tracker, flag, [2.0, 0.5, 1.0, 1.0, 64.0])
for scaler_class in (ampscaler.GradScaler, ampscaler.AmpScaler):
    for fused in (False, True):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], fused=fused)
        scaler = scaler_class("cpu")
        parameter.grad = scaler.scale(torch.ones(3))
        scaler.clip_grad_norm_(optimizer, 1.0)
        scaler.step(optimizer)
        scaler.update()
        scaler.state_dict()
assert not torch.cuda.is_initialized()
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text(DRIVER)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


def calls_of_cuda(driver, tmp_path, program):
    calls = tmp_path / "calls"
    folders = f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = os.environ | {"LD_LIBRARY_PATH": folders, "CALLS_FILE": str(calls)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return calls.read_text().split() if calls.exists() else []


def test_a_call_of_cuda_is_noticed(driver, tmp_path):
    assert calls_of_cuda(driver, tmp_path, "import torch; torch.cuda.is_available()")


@pytest.mark.parametrize("program", ["import ampscaler", USE], ids=["import", "use"])
def test_none_is_made_for_the_cpu(driver, tmp_path, program):
    assert calls_of_cuda(driver, tmp_path, program) == []
