"""Random command lines, environments, files and frames: typed errors, and nothing else."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.errors import ConfigurationFaults
from ccm.settings import flags, read, read_arguments

EXAMPLES = int(os.environ.get("CCM_FUZZ_EXAMPLES", "100"))

VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "0", "-1", "true", "1e309", "5m", "1h2m3s", "*", "-route", "a=b", "::/0"]),
    st.integers().map(str),
    st.floats().map(str),
)
NAMES = st.one_of(st.sampled_from([flag.name for flag in flags()]), st.text(max_size=12))
ARGUMENTS = st.one_of(
    st.builds("--{}={}".format, NAMES, VALUES),
    st.builds("--{}".format, NAMES),
    st.builds("-{}".format, VALUES),
    VALUES,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=8), inner)),
    max_leaves=8,
)


def attempt(arguments: list[str], environ: dict[str, str]) -> None:
    try:
        read(read_arguments(arguments), environ)
    except ConfigurationFaults as faults:
        for fault in faults.faults:
            assert "\n" not in str(fault)
            assert fault.field
            assert fault.remedy


@settings(max_examples=EXAMPLES)
@given(st.lists(ARGUMENTS, max_size=6))
def test_any_command_line_is_read_or_its_faults_are_told(arguments: list[str]) -> None:
    attempt(arguments, {})


@settings(max_examples=EXAMPLES)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_environment_is_read_or_its_faults_are_told(given_texts: dict[str, str]) -> None:
    environ = {f"CCM_{n.upper().replace('-', '_')}": text for n, text in given_texts.items()}
    environ.pop("CCM_CONFIG", None)
    attempt([], environ)


@settings(max_examples=EXAMPLES)
@given(st.one_of(JSON.map(lambda value: orjson.dumps(value, option=0)), st.binary(max_size=60)))
def test_any_file_is_read_or_its_faults_are_told(content: bytes) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "flags.yaml"
        file.write_bytes(content)
        attempt([f"--config={file}", "--cloud-provider=simulated"], {})


@pytest.mark.parametrize(
    "argument", ["--v=" + "9" * 5000, "--" + "x" * 100_000, "--controllers=" + "," * 99]
)
def test_a_long_argument_is_a_fault_like_any_other(argument: str) -> None:
    with pytest.raises(ConfigurationFaults):
        read(read_arguments([argument]), {})
