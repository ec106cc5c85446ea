"""The experiment's command line when something is missing or wrong: one line, an exit code, nothing overwritten."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from experiment_cases import (
    SCRIPT,
    SHORT,
    environment,
    errors,
    go_offline,
    hub,
    model,
    parse_options,
    reading,
    record,
    run,
)

PREFIX = "train_mixed_precision_backward: "


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    go_offline(monkeypatch, tmp_path / "cache")


def error_of(capsys):
    """The one line on stderr, without the program's name."""
    text = capsys.readouterr().err
    assert text.startswith(PREFIX)
    assert text.count("\n") == 1
    return text.removeprefix(PREFIX).rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--run-mode", "fast"], "--run-mode: invalid choice: 'fast'"),
        (["--scaler", "none"], "--scaler: invalid choice: 'none'"),
        (["--candidate-dtype", "float8"], "--candidate-dtype: invalid choice: 'float8'"),
        (["--repeats", "0"], "--repeats: expected a whole number in [1, 1000000000], got '0'"),
        (["--repeats", "2.5"], "--repeats: expected a whole number in [1, 1000000000], got '2.5'"),
        (["--warmup", "-1"], "--warmup: expected a whole number in [0, 1000000000], got '-1'"),
        (["--seq-len", "1"], "--seq-len: expected a whole number in [2, 1000000000], got '1'"),
        (["--learning-rate", "nan"], "--learning-rate: expected a normal float32 number > 0, got 'nan'"),
        (["--learning-rate", "0"], "--learning-rate: expected a normal float32 number > 0, got '0'"),
        (["--initial-scale", "inf"], "--initial-scale: expected a normal float32 number > 0, got 'inf'"),
        (["--initial-scale", "1e39"], "--initial-scale: expected a normal float32 number > 0, got '1e39'"),
        (["--initial-scale", "1e-50"], "--initial-scale: expected a normal float32 number > 0, got '1e-50'"),
        (["--learning-rate", "1e39"], "--learning-rate: expected a normal float32 number > 0, got '1e39'"),
        (["--seed", "-1"], "--seed: expected a whole number in [0, 2**63), got '-1'"),
        (["--run-label", "../x"], "--run-label: expected letters, digits, '.', '_' or '-' (at most 100), got '../x'"),
        (["--read", "a/b"], "--read: expected letters, digits, '.', '_' or '-' (at most 100), got 'a/b'"),
    ],
)
def test_wrong_options_give_2(arguments, error, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse_options(arguments)
    assert stopped.value.code == 2
    assert f"argument {error}" in capsys.readouterr().err


def test_the_defaults_are_those_of_the_experiment():
    options = parse_options([])
    assert (options.run_mode, options.candidate_dtype, options.profile_id) == (
        "dry_run",
        "float16",
        "TRAIN-CUDA-MECHANISM",
    )
    assert (options.batch_size, options.seq_len, options.repeats, options.warmup) == (1, 128, 20, 1)
    assert (options.learning_rate, options.max_norm, options.initial_scale) == (1e-4, 1.0, 65536.0)
    assert (options.max_scale_backoff_steps, options.seed) == (12, 2026)


@pytest.mark.parametrize("mode", [[], SHORT], ids=["dry_run", "real_cpu"])
def test_an_output_folder_that_is_a_file_gives_2(mode, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("kept")
    code, _ = run(file, *mode)
    assert code == 2
    assert error_of(capsys) == f"--output-dir {file}: expected a folder that can be written"
    assert file.read_text() == "kept"


def test_real_gpu_without_a_gpu_gives_3(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, path = run(tmp_path, "--run-mode", "real_gpu")
    assert code == 3
    assert error_of(capsys) == "real_gpu: expected a CUDA device, and torch finds none; real_cpu runs without"
    assert not path.exists()


@pytest.fixture
def gpu_without_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # What torch answers on such a GPU: it can emulate the dtype, and has no instructions for it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Old GPU")


@pytest.mark.usefixtures("gpu_without_bfloat16")
def test_bfloat16_on_a_gpu_without_it_gives_3(tmp_path, capsys):
    code, path = run(tmp_path, "--run-mode", "real_gpu", "--candidate-dtype", "bfloat16")
    assert code == 3
    assert error_of(capsys) == "real_gpu: --candidate-dtype bfloat16: Old GPU has no bfloat16; use float16"
    assert not path.exists()
    environment.check_hardware("real_gpu", "float16")


@pytest.mark.parametrize("mode", [[], SHORT], ids=["dry_run", "real_cpu"])
def test_a_checkpoint_that_is_neither_cached_nor_reachable_gives_3(mode, tmp_path, capsys):
    code, path = run(tmp_path, *mode, "--model", "checkpoint")
    assert code == 3
    error = error_of(capsys)
    assert "--model checkpoint: Qwen/Qwen2.5-0.5B at main: not in the cache, and the hub: Cannot reach " in error
    assert not path.exists()


def test_an_unreachable_hub_makes_the_full_model_a_random_one():
    plan = model.plan_model(parse_options([]), "real_gpu")
    assert (plan.kind, plan.weights, plan.tokenizer) == ("random", None, None)
    assert plan.describe().startswith(
        "full Qwen/Qwen2.5-0.5B architecture, random weights (not in the cache, and the hub: "
    )


def test_a_hub_that_never_answers_is_left_behind():
    release = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0.05 seconds"):
        hub.within_seconds(0.05, release.wait)
    release.set()
    with pytest.raises(ZeroDivisionError):
        hub.within_seconds(30, lambda: 1 // 0)


def test_a_process_without_a_hub_says_so_and_ends_with_the_code(tmp_path):
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1"
    command = [sys.executable, str(SCRIPT), "--scaler", "torch", "--model", "checkpoint"]
    command += ["--output-dir", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(f"{PREFIX}no run mode is available: ")
    assert "Connection refused" in done.stderr
    assert not (tmp_path / "out").exists()


def test_missing_packages_give_3(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    assert run(tmp_path)[0] == 3
    expected = "the experiment needs transformers and jsonschema: pip install -r requirements-dev.txt"
    assert error_of(capsys) == expected


def test_a_package_without_its_module_gives_3(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ampscaler", None)
    assert run(tmp_path, "--scaler", "both")[0] == 3
    assert error_of(capsys).startswith("--scaler ampscaler: the package ampscaler cannot be imported: ")
    assert run(tmp_path, "--scaler", "torch")[0] == 0


@pytest.mark.parametrize("mode", [[], SHORT], ids=["dry_run", "real_cpu"])
def test_an_existing_label_gives_4_and_stays(mode, tmp_path, capsys):
    path = record.record_path(tmp_path, "taken")
    path.write_text("someone's result")
    assert run(tmp_path, *mode, label="taken")[0] == 4
    assert error_of(capsys) == f"--run-label taken: {path} exists; choose another label, or --overwrite"
    assert path.read_text() == "someone's result"


def test_overwrite_replaces_this_label_only(tmp_path, capsys):
    for label in ("taken", "other"):
        record.record_path(tmp_path, label).write_text("someone's result")
    assert run(tmp_path, "--overwrite", label="taken")[0] == 0
    assert "(replaces the one there)" in capsys.readouterr().out
    code, path = run(tmp_path, *SHORT, "--scaler", "torch", "--overwrite", label="taken")
    assert code == 0
    assert reading.read(tmp_path, "taken")["decision"] == "accept"
    assert record.record_path(tmp_path, "other").read_text() == "someone's result"
    assert len(list(tmp_path.iterdir())) == 2, path


def test_a_label_that_appears_during_the_run_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "check_schema", lambda record: None)
    options = parse_options(["--run-label", "raced", "--output-dir", str(tmp_path)])
    path = record.write({"mine": 1}, options)
    with pytest.raises(errors.LabelExistsError, match="--run-label raced: .* appeared during the run"):
        record.write({"mine": 2}, options)
    assert path.read_text() == '{\n  "mine": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]
