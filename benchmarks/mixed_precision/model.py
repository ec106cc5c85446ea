"""The model and its tokenizer: the checkpoint, its architecture with random weights, or a tiny one of the same kind.

What is used is decided without loading anything (plan_model), so that a dry run can say it.
"""

import contextlib
import dataclasses
from typing import Any

import torch

from mixed_precision import hub
from mixed_precision.errors import UnavailableError
from mixed_precision.options import Options

ARCHITECTURE = {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
QWEN_05B = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
TINY = {
    "vocab_size": 384,  # of the byte-level tokenizer
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Plain matrix products and a softmax, deterministic on every device; "sdpa" may choose a CUDA kernel that is not.
ATTENTION = "eager"
EVIDENCE = {
    "checkpoint": "real_model_mechanism_benchmark",
    "random": "random_model_mechanism_benchmark",
    "tiny": "tiny_model_mechanism_benchmark",
}


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """Which model a run uses."""

    kind: str  # "checkpoint", "random" or "tiny"
    weights: hub.Found | None
    tokenizer: hub.Found | None
    reason: str = ""  # why it is not the checkpoint

    def describe(self) -> str:
        if self.weights is not None:
            return f"{hub.MODEL_ID} at {self.weights.commit[:12]}, from the {self.weights.source}"
        size = "tiny configuration of the" if self.kind == "tiny" else "full"
        text = f"{size} {hub.MODEL_ID} architecture, random weights"
        return f"{text} ({self.reason})" if self.reason else text


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model on the CPU, which every run copies; `record` is what the record says about it."""

    network: torch.nn.Module
    tokenizer: Any
    record: dict[str, Any]
    kind: str


def plan_model(options: Options, run_mode: str) -> ModelPlan:
    """Looks in the cache and asks the hub where the choice needs it; loads nothing."""
    choice = options.model
    if choice == "auto":
        choice = "tiny" if run_mode == "real_cpu" else "full"
    if choice == "tiny":
        return ModelPlan("tiny", None, None)
    try:
        files = hub.TOKENIZER_FILES if choice == "random" else hub.WEIGHT_FILES
        found = hub.find(options.revision, files)
    except hub.NotFound as error:
        if choice == "checkpoint":
            raise UnavailableError(f"--model checkpoint: {hub.MODEL_ID} at {options.revision}: {error}") from error
        reason = str(error) if choice == "full" else ""
        return ModelPlan("random", None, hub.find_cached(options.revision, hub.TOKENIZER_FILES), reason)
    if choice == "random":
        return ModelPlan("random", None, found)
    return ModelPlan("checkpoint", found, found)


def load_tokenizer(found: hub.Found | None) -> tuple[Any, str]:
    """The tokenizer and where it comes from; a byte-level one, which needs no files, when none can be loaded."""
    from transformers import AutoTokenizer, ByT5Tokenizer

    if found is not None:
        with contextlib.suppress(OSError, ValueError, UnavailableError):
            folder = hub.fetch(found, hub.TOKENIZER_DOWNLOADS)
            # Without these files transformers makes an empty tokenizer instead of an error.
            if hub.has_any(folder, hub.TOKENIZER_FILES):
                return AutoTokenizer.from_pretrained(folder, local_files_only=True), found.source
    return ByT5Tokenizer(), "byte_level"


def load_network(plan: ModelPlan, seed: int) -> torch.nn.Module:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, Qwen2Config

    settings = {"attn_implementation": ATTENTION, "dtype": torch.float32}
    if plan.weights is not None:
        folder = hub.fetch(plan.weights, hub.DOWNLOADS)
        try:
            return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **settings)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[0].replace(str(folder), "the cached snapshot")
            raise UnavailableError(f"{hub.MODEL_ID}: the checkpoint cannot be loaded: {reason}") from error
    torch.manual_seed(seed)
    config = Qwen2Config(**ARCHITECTURE, **(TINY if plan.kind == "tiny" else QWEN_05B))
    return AutoModelForCausalLM.from_config(config, **settings)


def load_model(plan: ModelPlan, options: Options) -> LoadedModel:
    network = load_network(plan, options.seed).train()
    network.config.use_cache = False
    tokenizer, tokenizer_source = load_tokenizer(plan.tokenizer)
    if len(tokenizer) > network.config.vocab_size:
        size = network.config.vocab_size
        raise UnavailableError(f"tokenizer of {len(tokenizer)} tokens: the model knows {size}")
    record = {
        "id": hub.MODEL_ID,
        "requested_revision": options.revision,
        "resolved_commit": plan.weights.commit if plan.weights else None,
        "resolution_source": plan.weights.source if plan.weights else f"{plan.kind}_initialisation",
        "tokenizer_class": type(tokenizer).__name__,
        "tokenizer_source": tokenizer_source,
        "architecture": type(network).__name__,
        "attention": ATTENTION,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }
    return LoadedModel(network, tokenizer, record, plan.kind)
