"""Host time of GradScaler.unscale_ on many small gradients: torch's scaler, the drop-in and the C++ class in one run.

Prints the best of many rounds for each, the ratio to torch's, and the floor: one bare call of our operator on the list.
"""

import argparse
import json
import pathlib
import subprocess
import time

import torch

import ampscaler

SCALERS = {
    "torch.amp.GradScaler": torch.amp.GradScaler,
    "ampscaler.GradScaler": ampscaler.GradScaler,
    "ampscaler.AmpScaler": ampscaler.AmpScaler,
}


def make_problem(count, size):
    parameters = [torch.nn.Parameter(torch.zeros(size)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(size)
    return torch.optim.SGD(parameters, lr=0.1)


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def make_rounds(optimizer):
    """One function per scaler: a timed unscale_, then an untimed end of the iteration."""

    def timed_round(scaler):
        elapsed = seconds(lambda: scaler.unscale_(optimizer))
        scaler.update(1.0)
        return elapsed

    rounds = {}
    for name, scaler_class in SCALERS.items():
        scaler = scaler_class("cpu", init_scale=1.0)
        scaler.scale(torch.ones(()))
        rounds[name] = lambda scaler=scaler: timed_round(scaler)
    gradients = [parameter.grad for parameter in optimizer.param_groups[0]["params"]]
    found_inf, inv_scale = torch.zeros(()), torch.full((), 0.5)
    operator = torch.ops.ampscaler.unscale_.default
    rounds["floor: the operator alone"] = lambda: seconds(lambda: operator(gradients, found_inf, inv_scale))
    return rounds


def measure(rounds, repeats):
    """The best time of each, with all of them taking turns."""
    best = dict.fromkeys(rounds, float("inf"))
    for _ in range(repeats):
        for name, timed in rounds.items():
            best[name] = min(best[name], timed())
    return best


def describe_machine():
    """What a result depends on besides the code."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    folder = pathlib.Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()
    return {"cpu": cpu, "torch": torch.__version__, "ampscaler": ampscaler.__version__, "commit": commit}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of gradients")
    parser.add_argument("--size", type=int, default=64, help="elements of each")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", type=pathlib.Path, help="also write the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    best = measure(make_rounds(make_problem(arguments.count, arguments.size)), arguments.repeats)
    reference = best["torch.amp.GradScaler"]
    print(f"unscale_ of {arguments.count} fp32 gradients of {arguments.size} elements, CPU, 1 thread")
    for name, value in best.items():
        print(f"  {name:28s} {value * 1e6:8.0f} us   torch's time / {reference / value:5.1f}")
    if arguments.json:
        result = describe_machine() | {"count": arguments.count, "size": arguments.size, "threads": 1}
        result["microseconds"] = {name: round(value * 1e6, 1) for name, value in best.items()}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
