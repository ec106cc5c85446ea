"""Plants each defect of mutations.py and checks that the named test program fails.

    python tests/simt/check_mutants.py --build build/2.15.0-cuda-auto [--only WORD] [--all-builds]

A defect is planted in the first of its builds, or in all of them. Uses the compile and link commands of a finished
build, and leaves its files alone: a defect has a folder of its own in the build folder, always the same one, so that
ccache knows what was compiled before. A defect that goes unnoticed, does not compile, or whose line is not found
exactly once, fails the check; so does a program that fails without a defect.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from mutations import ASAN, MUTATIONS, PLAIN, RACE, Mutation

ROOT = pathlib.Path(__file__).parents[2]
LIMIT_SECONDS = 300

# In the program with the defect. It ends at the first failure, so it is compiled faster than it would run; a data race
# is reported with line numbers.
OPTIONS = {PLAIN: ["-O1", "-g0"], ASAN: ["-g1"], RACE: ["-g1"]}


@dataclass(frozen=True)
class Outcome:
    """What one build of one mutation did: `wrong` says why the check fails."""

    title: str
    wrong: str
    said: str


def run(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs with a limit, since a mutant may never end; that counts as a failure of it."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no end after {LIMIT_SECONDS} s")


class Build:
    """The commands of a CMake build with Ninja."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, str]] = json.loads((folder / "compile_commands.json").read_text())

    def _ninja(self, *arguments: str) -> str:
        result = subprocess.run(["ninja", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return result.stdout

    def compile_commands(self, target: str) -> dict[str, list[str]]:
        """By object file."""
        commands = [shlex.split(entry["command"]) for entry in self.entries]
        by_object = {command[command.index("-o") + 1]: command for command in commands}
        return {name: command for name, command in by_object.items() if f"/{target}.dir/" in name}

    def link_command(self, target: str) -> list[str]:
        """Without the `: &&` that CMake puts around it."""
        words = shlex.split(self._ninja("-t", "commands", "-s", f"tests/{target}").strip().splitlines()[-1])
        return [word for word in words if word not in {":", "&&"}]

    def depends_on(self, object_file: str, header: pathlib.Path) -> bool:
        """Whether the object was compiled from a source that includes the header."""
        known = self._ninja("-t", "deps", object_file).splitlines()[1:]
        return any((self.folder / line.strip()).resolve() == header.resolve() for line in known)


def target_of(program: str, build: str) -> str:
    """The program's name in one of its builds."""
    return program if build == PLAIN else f"{program}_{build}"


def lines_to_replace(mutation: Mutation) -> list[int]:
    """Which lines of its header the mutation would replace: exactly one, if all is well."""
    lines = (ROOT / mutation.file).read_text().splitlines()
    return [number for number, line in enumerate(lines) if line.strip() == mutation.line.strip()]


def mutated_header(mutation: Mutation, folder: pathlib.Path) -> str:
    """Writes the header with the defect below `folder`; returns what is wrong with the mutation, or nothing."""
    hits = lines_to_replace(mutation)
    if len(hits) != 1:
        return f"the line occurs {len(hits)} times in {mutation.file}: {mutation.line}"
    lines = (ROOT / mutation.file).read_text().splitlines()
    line = lines[hits[0]]
    lines[hits[0]] = line[: len(line) - len(line.lstrip())] + mutation.replacement
    # As it is included: below csrc/ or tests/.
    target = folder / pathlib.Path(*pathlib.Path(mutation.file).parts[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
    return ""


def build_mutant(build: Build, mutation: Mutation, variant: str, folder: pathlib.Path) -> str:
    """Makes `folder`/program; returns what went wrong, or nothing."""
    target = target_of(mutation.program, variant)
    first_options, last_options = [f"-I{folder}"], ["-w", *OPTIONS[variant]]
    if mutation.file:
        wrong = mutated_header(mutation, folder)
        if wrong:
            return wrong
    if mutation.define:
        first_options.append(f"-D{mutation.define}")
    link = build.link_command(target)
    changed = 0
    for object_file, command in build.compile_commands(target).items():
        if mutation.file and not build.depends_on(object_file, ROOT / mutation.file):
            continue
        changed += 1
        mutant = str(folder / f"{changed}.o")
        first_option = next(number for number, word in enumerate(command) if word.startswith("-"))
        words = [mutant if word == object_file else word for word in command]
        command_line = [*words[:first_option], *first_options, *words[first_option:], *last_options]
        compiled = run(command_line, build.folder)
        if compiled.returncode != 0:
            return "does not compile: " + compiled.stderr
        link = [mutant if word == object_file else word for word in link]
    if changed == 0:
        return f"no source of {target} includes {mutation.file}"
    link[link.index("-o") + 1] = str(folder / "program")
    linked = run(link, build.folder)
    return "" if linked.returncode == 0 else "does not link: " + linked.stderr


def first_complaint(result: subprocess.CompletedProcess[str]) -> str:
    """The line of a failing test that tells most."""
    words = ("what():", "C++ exception with", "SUMMARY:", "runtime error:", "  Actual:", "Which is:", "no end after")
    for line in (result.stdout + result.stderr).splitlines():
        if any(word in line for word in words):
            return line.strip()[:200]
    return f"exit code {result.returncode}"


def check_mutant(build: Build, mutation: Mutation, variant: str) -> Outcome:
    """One defect in one build."""
    title = f"{mutation.name} [{variant}]"
    folder = build.folder / "mutants" / re.sub(r"\W+", "_", title)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        wrong = build_mutant(build, mutation, variant, folder)
        if wrong:
            return Outcome(title, wrong, "")
        result = run([str(folder / "program"), "--gtest_fail_fast"], build.folder)
    finally:
        shutil.rmtree(folder)
    if result.returncode == 0:
        return Outcome(title, "unnoticed", "")
    return Outcome(title, "", first_complaint(result))


def check_original(build: Build, program: str, variant: str) -> Outcome:
    """The same program without a defect."""
    result = run([str(build.folder / "tests" / target_of(program, variant))], build.folder)
    wrong = "" if result.returncode == 0 else "fails without a defect: " + first_complaint(result)
    return Outcome(f"{program} as it is [{variant}]", wrong, "all is well")


def planted_checks(mutations: list[Mutation], all_builds: bool) -> list[tuple[Mutation, str]]:
    """Each mutation with the builds in which it is planted."""
    return [(mutation, variant) for mutation in mutations for variant in mutation.builds[: None if all_builds else 1]]


def missing_programs(build: Build, mutations: list[Mutation], all_builds: bool) -> list[str]:
    """The programs to be mutated that have not been built."""
    targets = {target_of(mutation.program, variant) for mutation, variant in planted_checks(mutations, all_builds)}
    return sorted(target for target in targets if not (build.folder / "tests" / target).exists())


def plan_checks(
    build: Build, mutations: list[Mutation], all_builds: bool, pool: ThreadPoolExecutor
) -> list[Future[Outcome]]:
    """The longest first, so that no core waits at the end."""
    order = [RACE, ASAN, PLAIN]
    planted = planted_checks(mutations, all_builds)
    planted.sort(key=lambda pair: order.index(pair[1]))
    used = sorted({(mutation.program, variant) for mutation, variant in planted}, key=lambda pair: order.index(pair[1]))
    checks = [pool.submit(check_original, build, program, variant) for program, variant in used]
    return checks + [pool.submit(check_mutant, build, mutation, variant) for mutation, variant in planted]


def main() -> int:
    """Returns 1 if any outcome is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a finished build folder")
    parser.add_argument("--only", default="", help="only mutations with this word in their name")
    parser.add_argument("--all-builds", action="store_true", help="each in every build that must notice it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if arguments.only in mutation.name]
    if not chosen:
        parser.error(f"--only: no defect has {arguments.only!r} in its name")
    if not (arguments.build / "compile_commands.json").exists():
        parser.error(f"{arguments.build} is no finished build: `make build` makes one")
    build = Build(arguments.build.resolve())
    if not build.compile_commands("simt_mutant_test"):
        print("skipped: this build has no SIMT tests, for want of the CUDA headers")
        return 0
    missing = missing_programs(build, chosen, arguments.all_builds)
    if missing:
        parser.error(f"{arguments.build} is no finished build: `make build` makes {', '.join(missing)}")
    begin = time.monotonic()
    wrong = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        checks = plan_checks(build, chosen, arguments.all_builds, pool)
        for check in as_completed(checks):
            outcome = check.result()
            wrong += 1 if outcome.wrong else 0
            verdict = f"WRONG {outcome.title}: {outcome.wrong}"
            print(verdict if outcome.wrong else f"ok    {outcome.title}: {outcome.said}", flush=True)
    print(f"{len(chosen)} defects, {len(checks)} checks, {wrong} wrong, {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
