"""The table that is printed."""

from __future__ import annotations

from typing import Any

HEADER = (
    f"{'case':20}{'optimizer':10}{'threads':>7}{'torch ms':>10}{'ours ms':>9}{'ratio':>7}{'best':>7}{'goal':>6} {'':7}"
    f"{'read ms':>8}{'limit':>7}{'share':>7}{'goal':>6}"
)


def verdict(is_met: bool | None) -> str:
    return "" if is_met is None else "met" if is_met else "MISSED"


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def row(result: dict[str, Any]) -> str:
    times, read, share = result["milliseconds"], result["milliseconds"]["plain_read"], result["read_share"]
    limit = result["ratio_limit"]
    return (
        f"{result['case']:20}{result['kind']:10}{result['threads']:7}"
        f"{times['torch']['median']:10.3f}{times['ampscaler']['median']:9.3f}"
        f"{result['ratio']['median']:7.2f}{result['ratio']['best']:7.2f}{number(result['ratio_goal'], '.3g'):>6} "
        f"{verdict(result['ratio_met']):7}"
        f"{number(read and read['median'], '.2f'):>8}{number(limit and limit['median'], '.2f'):>7}"
        f"{number(share and share['median'], '.0%'):>7}"
        f"{number(result['read_share_goal'], '.0%'):>6} {verdict(result['read_share_met'])}"
    ).rstrip()


def heading(record: dict[str, Any]) -> str:
    machine, software = record["machine"], record["software"]
    return "\n".join(
        [
            "unscale and clip: torch's recipe / ours; medians, and the ratio of the best times beside",
            "limit: the ratio of a plain read of as many bytes, which no pass can exceed; share: plain read / ours",
            f"{machine['cpu']}, {machine['cores']} cores, last-level cache {machine['last_level_cache_mib']} MiB; "
            f"load {record['load']['before']}",
            f"torch {software['torch']} ({software['torch_cpu_capability']}), ampscaler {software['ampscaler']} "
            f"({software['cpu_isa']}), commit {software['commit']}",
            HEADER,
        ]
    )


def closing(record: dict[str, Any]) -> str:
    verdicts = [result[key] for result in record["results"] for key in ("ratio_met", "read_share_met")]
    goals = [value for value in verdicts if value is not None]
    return f"load {record['load']['after']}; {sum(goals)} of {len(goals)} goals met" if goals else "not judged"
