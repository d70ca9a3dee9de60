"""Mutates one module after the other, and compares what survives with `survivors.tsv`.

    python -m tests.mutation [--jobs N] [--fresh] [MODULE...]

Each module has a directory of its own below `.mutants`, in which mutmut keeps what it has done, so
a run that was interrupted goes on. When tests change, what they killed stays killed and what
survived is tried again; `--fresh` tries all again.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

from tests.mutation.lists import Mutant, files_by_module, reasons

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".mutants"
LINKS = ("ccm", "workers", "tests", "docs")
TEXT = re.compile(r'"([^"]*)"')
KILLED = {1, 3, -signal.SIGXCPU, -signal.SIGKILL}
"""Exit codes of the tests of one mutant: one failed, or pytest itself; it took too long."""
MUTMUT = {
    "source_paths": ["ccm", "workers"],
    "also_copy": ["docs"],
    # The wording of a log line is for people, and no promise.
    "do_not_mutate_patterns": [r"\blog\.(debug|info|warning|error|exception|log)\("],
    # The same examples each time, so that a mutant that is killed stays so.
    "pytest_add_cli_args": [
        "--hypothesis-seed=0",
        "-pno:cacheprovider",
        "-pno:unraisableexception",  # it collects garbage twice, a third of the time of a mutant
        "-ptests.mutation.plugin",
        "-mnot real",
    ],
    "process_isolation": ["forkserver"],
    "timeout_constant": ["3"],
    "timeout_multiplier": ["4"],
    "on_dependency_change": ["ignore"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="all of modules.tsv, unless some are named")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are tried at a time")
    parser.add_argument("--fresh", action="store_true", help="try also what was killed before")
    args = parser.parse_args()
    tests, accepted = files_by_module(), reasons()
    if unknown := set(args.modules) - set(tests):
        parser.error(f"modules.tsv has no row for {', '.join(sorted(unknown))}")
    modules = args.modules or list(tests)
    survived = {
        mutant
        for module in modules
        for mutant in _run(module, tests[module], args.jobs, args.fresh)
    }
    unlisted = survived - accepted.keys()
    obsolete = {mutant for mutant in accepted if mutant.module in modules} - survived
    for title, mutants in (
        ("no longer survive, so their rows can go from survivors.tsv", obsolete),
        ("survive without a reason in survivors.tsv", unlisted),
    ):
        if mutants:
            print(f"These {title}:")
        for one in sorted(mutants):
            print("\t".join((one.module, one.function, one.before, one.after, "")))
    return bool(unlisted)


def _run(module: str, tests: list[str], jobs: int, fresh: bool) -> set[Mutant]:
    """Run what is left to be run of one module, print its line, and return what survives."""
    directory = WORK / module.removesuffix(".py").replace("/", ".")
    if fresh:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)  # all of mutmut's paths are relative
    _prepare(module, tests)
    mutmut = Path(sys.executable).with_name("mutmut")
    # The hash seed orders the tests of a mutant.
    environment = os.environ | {"PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "desk"}
    with Path("log").open("w") as log:
        ended = subprocess.run(
            [mutmut, "run", "--max-children", str(jobs)], env=environment, stdout=log, stderr=log
        )
    if ended.returncode:
        sys.exit(f"{module}: mutmut failed, see {directory / 'log'}")
    codes = _load(module).exit_code_by_key
    if unfinished := [name for name, code in codes.items() if code is None]:
        sys.exit(f"{module}: {len(unfinished)} mutants were not tried, run it again")
    mutants = {name: _mutant(module, name) for name, code in codes.items() if code not in KILLED}
    survived = {one for one in mutants.values() if not _is_wording(one)}
    total, killed = len(codes), len(codes) - len(mutants)
    percent = 100 * killed / max(total, 1)
    print(
        f"{module:36}{total:6} mutants{killed:6} killed{total - killed:5} survived {percent:5.1f} %"
    )
    sys.stdout.flush()
    return survived


def _is_wording(mutant: Mutant) -> bool:
    """Whether the case or the ends of a sentence were changed, which is for people as in a log."""
    before, after = (TEXT.findall(line) for line in (mutant.before, mutant.after))
    changed = [(old, new) for old, new in zip(before, after, strict=False) if old != new]
    is_same_code = TEXT.sub('""', mutant.before) == TEXT.sub('""', mutant.after)
    return is_same_code and all(
        " " in old and (new == f"XX{old}XX" or new.casefold() == old.casefold())
        for old, new in changed
    )


def _prepare(module: str, tests: list[str]) -> None:
    """Lay out the project around one module; forget what survived other tests."""
    for name in LINKS:
        if not Path(name).exists():
            Path(name).symlink_to(ROOT / name)
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    options = MUTMUT | {"only_mutate": [module], "pytest_add_cli_args_test_selection": tests}
    config["mutmut"] = {name: "\n".join(values) for name, values in options.items()}
    with Path("setup.cfg").open("w") as file:
        config.write(file)
    folders = sorted({Path(path).parent for path in tests})
    files = [Path(module), *(file for each in folders for file in sorted(each.glob("*.py")))]
    digest = sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if Path("digest").exists() and Path("digest").read_text() != digest:
        _forget_survivors(module)
    Path("digest").write_text(digest)


def _forget_survivors(module: str) -> None:
    """So that other tests are tried on them."""
    shutil.rmtree("mutants/tests", ignore_errors=True)
    Path("mutants/mutmut-stats.json").unlink(missing_ok=True)
    data = _load(module)
    for name, code in data.exit_code_by_key.items():
        if code not in KILLED:
            data.exit_code_by_key[name] = None
    if data.exit_code_by_key:
        data.save()


def _load(module: str) -> SourceFileMutationData:
    """What mutmut keeps of one module."""
    data = SourceFileMutationData(path=module)
    data.load()
    return data


def _mutant(module: str, name: str) -> Mutant:
    """Read from the difference to the original what was changed."""
    lines = get_diff_for_mutant(name, path=module).splitlines()[3:]
    before, after = (
        " ".join(" ".join(line[1:] for line in lines if line.startswith(sign)).split())
        for sign in "-+"
    )
    function, owner = orig_function_and_class_names_from_key(name)
    return Mutant(module, f"{owner}.{function}" if owner else function, before, after)


if __name__ == "__main__":
    sys.exit(main())
