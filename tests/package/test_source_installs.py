"""`pip install .` and `pip install -e .`, without build isolation, from a fresh copy."""

import pytest

from package_tools import build_consumer, check_consumer, run

REPORT = """
import torch, ampscaler
weight = torch.ones(2, requires_grad=True)
scaler = ampscaler.AmpScaler("cpu", init_scale=8.0)
scaler.scale((weight * 2).sum()).backward()
scaler.step(torch.optim.SGD([weight], lr=0.5))
scaler.update()
print(weight.tolist(), ampscaler.__file__)
print(ampscaler.cmake_prefix_path)
"""


@pytest.fixture(scope="module", params=["install", "editable"])
def source_install(request, project, clean_python, cuda_mode):
    """What the package says when it was installed from source; --no-index proves no download."""
    options = ["-e", "."] if request.param == "editable" else ["."]
    command = [clean_python, "-m", "pip", "install", *options, "--no-build-isolation", "--no-index"]
    run(command, project, AMPSCALER_CUDA=cuda_mode)
    yield [request.param, *run([clean_python, "-c", REPORT], clean_python.parent).splitlines()]
    run([clean_python, "-m", "pip", "uninstall", "--yes", "ampscaler"], project)


def test_it_trains(source_install):
    assert source_install[1].startswith("[0.0, 0.0]")


def test_it_lies_where_it_should(source_install, project):
    kind, file, _ = source_install
    place = project / "python/ampscaler" if kind == "editable" else "/site-packages/ampscaler"
    assert f"{place}/__init__.py" in file


def test_a_consumer_needs_no_further_option(source_install, work_folder):
    # An editable install is no sibling of torch: its config remembers where torch was.
    kind, _, where = source_install
    check_consumer(build_consumer(work_folder / kind, f"-DCMAKE_PREFIX_PATH={where}"))
