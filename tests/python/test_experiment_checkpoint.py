"""The experiment with a checkpoint in the hub's cache, made here: it is used, and the record says so."""

import json
import types

import pytest
import torch

from experiment_cases import SHORT, go_offline, hub, model, parse_options, run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(monkeypatch, tmp_path):
    """The folder of a tiny Qwen2 checkpoint, which the cache holds as the revision main of Qwen2.5-0.5B."""
    cache = tmp_path / "cache"
    go_offline(monkeypatch, cache)
    repository = cache / "models--Qwen--Qwen2.5-0.5B"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(COMMIT)
    folder = repository / "snapshots" / COMMIT
    model.load_network(model.ModelPlan("tiny", None, None), seed=7).save_pretrained(folder)
    return folder


def save_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: number for number, text in enumerate([*alphabet, "<end>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_a_cached_checkpoint_is_trained_and_named(snapshot, tmp_path, with_tokenizer):
    if with_tokenizer:
        save_tokenizer(snapshot)
    code, path = run(tmp_path, *SHORT, "--model", "checkpoint", "--scaler", "torch")
    assert code == 0
    stored = json.loads(path.read_text())
    assert stored["evidence_level"] == "real_model_mechanism_benchmark"
    assert stored["hardware"]["cpu_threads"] == 1  # small, whatever it is called
    expected = {"id": hub.MODEL_ID, "requested_revision": "main", "resolved_commit": COMMIT}
    assert expected.items() <= stored["model"].items()
    assert stored["model"]["resolution_source"] == "cache"
    assert stored["model"]["tokenizer_source"] == ("cache" if with_tokenizer else "byte_level")
    assert str(tmp_path) not in path.read_text()


def test_a_checkpoint_on_the_hub_is_downloaded_at_the_commit_that_the_hub_names(snapshot, tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = []

    def download(name, revision, local_files_only=False, allow_patterns=None):
        if local_files_only:
            raise FileNotFoundError("nothing cached")
        asked.append((name, revision))
        return str(snapshot)

    def model_info(self, name, revision, timeout):
        return types.SimpleNamespace(sha={"v1": COMMIT}[revision])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    arguments = ["--model", "full", "--revision", "v1", "--scaler", "torch"]
    assert run(tmp_path, *arguments)[0] == 0
    assert asked == []
    code, path = run(tmp_path, *SHORT, *arguments)
    assert code == 0
    assert set(asked) == {(hub.MODEL_ID, COMMIT)}
    stored = json.loads(path.read_text())["model"]
    assert (stored["requested_revision"], stored["resolved_commit"]) == ("v1", COMMIT)
    assert stored["resolution_source"] == "hub"


def test_its_weights_are_the_stored_ones(snapshot):
    options = parse_options(["--model", "full"])
    plan = model.plan_model(options, "real_gpu")
    assert (plan.kind, plan.weights.commit) == ("checkpoint", COMMIT)
    assert plan.describe() == f"Qwen/Qwen2.5-0.5B at {COMMIT[:12]}, from the cache"
    loaded = model.load_model(plan, options).network
    stored = model.load_network(model.ModelPlan("tiny", None, None), seed=7)
    for name, weight in stored.named_parameters():
        assert torch.equal(loaded.get_parameter(name), weight), name


def test_a_damaged_checkpoint_gives_3_without_a_path(snapshot, tmp_path, capsys):
    (snapshot / "model.safetensors").write_bytes(b"no weights")
    code, path = run(tmp_path, *SHORT, "--model", "checkpoint", "--scaler", "torch")
    assert code == 3
    assert "Qwen/Qwen2.5-0.5B: the checkpoint cannot be loaded: " in capsys.readouterr().err
    assert not path.exists()


def test_a_snapshot_without_weights_is_no_checkpoint_but_lends_its_tokenizer(snapshot):
    (snapshot / "model.safetensors").unlink()
    save_tokenizer(snapshot)
    plan = model.plan_model(parse_options(["--model", "full"]), "real_gpu")
    assert (plan.kind, plan.weights) == ("random", None)
    tokenizer, source = model.load_tokenizer(plan.tokenizer)
    assert source == "cache"
    assert tokenizer.eos_token == "<end>"


def test_the_shape_without_a_checkpoint_is_the_published_one():
    """Qwen2.5-0.5B has 494,032,768 parameters, as its model card says: 0.49B, 0.36B of them not embeddings."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(Qwen2Config(**model.ARCHITECTURE, **model.QWEN_05B))
    assert sum(parameter.numel() for parameter in network.parameters()) == 494_032_768
