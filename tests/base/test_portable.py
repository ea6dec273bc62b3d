"""Every machine computes with the same instructions, and a record says with which."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import rebafl
from rebafl.base import portable
from rebafl.base.portable import AVX2, InUse
from rebafl.runs import environment as machine
from support.toy import run_toy

needs_avx2 = pytest.mark.skipif(not portable.has_avx2(), reason="this processor has no AVX2")
PINNED = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", portable.NATIVE)
FACTS = (
    "import json, os; from rebafl.runs.environment import machine; m = machine()\n"
    "print(json.dumps([m['bits'], m['instructions']['torch'], os.environ.get('ONEDNN_MAX_CPU_ISA'), m['kernel']]))"
)


def in_new_process(code, **variables):
    """What a fresh interpreter prints, and says on its standard error, with none of the variables but these."""
    clean = {name: value for name, value in os.environ.items() if name not in PINNED}
    path = str(Path(rebafl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**clean, "PYTHONPATH": path, **variables},
    )  # fmt: skip
    return json.loads(done.stdout), done.stderr


def on(monkeypatch, flags="fma avx avx2", vendor="AuthenticAMD", arch="x86_64", **variables):
    """Pretend to be on such a machine, in such an environment."""
    monkeypatch.setattr(portable, "processor", lambda: {"flags": flags, "vendor_id": vendor})
    monkeypatch.setattr(platform, "machine", lambda: arch)
    for name in PINNED:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_only_processors_that_have_it_are_told_to_use_avx2(monkeypatch):
    on(monkeypatch)
    assert portable.wanted() == {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    on(monkeypatch, vendor="GenuineIntel")
    assert portable.wanted()["MKL_CBWR"] == "AVX2"
    on(monkeypatch, REBAFL_NATIVE="1")
    assert portable.wanted() == {}
    on(monkeypatch, REBAFL_NATIVE="0")
    assert portable.wanted() != {}
    for flags in ("", "avx", "avx2", "fma avx"):
        on(monkeypatch, flags=flags)
        assert portable.wanted() == {}
    on(monkeypatch, arch="aarch64")
    assert portable.wanted() == {}


@needs_avx2
def test_importing_the_package_settles_it_before_torch_computes():
    (bits, torchs, onednn, kernel), said = in_new_process(FACTS)
    assert (torchs, onednn, kernel) == ("AVX2", "AVX2", "compiled")
    assert bits.split(", ")[0] == "portable"
    assert said == ""


@needs_avx2
def test_what_the_user_set_is_respected_and_recorded():
    (bits, torchs, *_), _ = in_new_process(FACTS, ATEN_CPU_CAPABILITY="default")
    assert torchs == "DEFAULT"
    assert bits.startswith("torch DEFAULT, oneDNN AVX2")
    assert "ATEN_CPU_CAPABILITY=default" in bits
    (bits, _, onednn, _), _ = in_new_process(FACTS, DNNL_MAX_CPU_ISA="AVX")
    assert onednn is None
    assert "oneDNN AVX, " in bits
    (bits, *_), _ = in_new_process(FACTS, ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    assert "portable" in bits, "the same as ours"


@needs_avx2
def test_native_code_is_another_kind():
    (bits, _, onednn, _), _ = in_new_process(FACTS, REBAFL_NATIVE="1")
    assert bits.startswith("native AVX")
    assert onednn is None


@needs_avx2
def test_torch_that_computed_before_is_noticed_once_and_recorded():
    """Lower than AVX2 stands for AVX-512 here: what counts is that torch no longer looks."""
    late = "import os, torch; torch.ones(3) + 1; del os.environ['ATEN_CPU_CAPABILITY']; import rebafl\n"
    (bits, *_), said = in_new_process(late + FACTS, ATEN_CPU_CAPABILITY="default")
    assert bits.startswith("torch DEFAULT")
    assert said.count("torch had computed before rebafl was imported, and keeps using ATen DEFAULT") == 1
    (bits, *_), said = in_new_process("import torch\n" + FACTS)
    assert "portable" in bits, "imported, but it has not computed yet"
    assert said == ""


def test_one_name_for_each_kind(monkeypatch):
    usual = InUse(AVX2, AVX2, "OFF")

    def kind(used=usual, own=None, kernel="compiled"):
        return machine.kind_of_bits(used, own or {}, kernel)

    on(monkeypatch)
    assert kind() == "portable"
    assert kind(kernel="torch") == "portable, without a C compiler"
    assert kind(InUse("AVX512", "AVX512", "OFF")) == "torch AVX512, oneDNN AVX512"
    assert kind(own={"MKL_CBWR": "COMPATIBLE"}) == "torch AVX2, oneDNN AVX2, MKL_CBWR=COMPATIBLE"
    on(monkeypatch, vendor="GenuineIntel")
    assert kind(InUse(AVX2, AVX2, AVX2)) == "portable, Intel"
    assert kind() == "portable, Intel, MKL OFF"
    on(monkeypatch, REBAFL_NATIVE="1")
    assert kind(InUse("AVX512", "AVX512", "OFF")) == "native AVX512"
    on(monkeypatch, arch="aarch64", vendor="")
    assert kind(InUse("DEFAULT", "none", "none")) == "aarch64"


def test_kinds_are_compared_only_where_both_are_known():
    assert machine.other_bits({"bits": "portable"}, {"bits": "portable"}) == ""
    assert machine.other_bits({}, {"bits": "portable"}) == ""
    assert "'portable', those of this machine 'aarch64'" in machine.other_bits(
        {"bits": "portable"}, {"bits": "aarch64"}
    )


def test_a_run_from_before_these_facts_were_recorded_gets_its_kind_of_bits_and_no_more(tmp_path, toy):
    out = tmp_path / "run"
    record = run_toy(out, toy, rounds=1)
    facts = record.environment()
    assert facts["bits"] == machine.machine()["bits"]
    old = {name: value for name, value in facts.items() if name not in ("bits", "instructions")}
    record.write_environment(old)
    run_toy(out, toy, rounds=2)
    went_on = [{"after_round": 1, "bits": facts["bits"]}]
    assert record.environment() == old | {"went_on_with": went_on}


@needs_avx2
@pytest.mark.parametrize("name", ["rebafl.engines.ray_tasks", "rebafl.federation.app.client_app", "rebafl.bench.ours"])
def test_whichever_module_comes_first_torch_finds_it_set(name):
    """What a worker of a running Ray cluster, a node or a benchmark imports: seen when torch is first asked for."""
    code = (
        "import json, os, sys\n"
        "class Look:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        "            print(json.dumps(os.environ.get('ATEN_CPU_CAPABILITY')))\n"
        "            os._exit(sys.stdout.flush() or 0)\n"
        f"sys.meta_path.insert(0, Look()); import {name}"
    )
    assert in_new_process(code)[0] == "avx2"


def test_programs_of_others_do_not_get_what_was_set_for_ours(monkeypatch):
    monkeypatch.setattr(portable, "_set_here", {"ATEN_CPU_CAPABILITY"})
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "ATEN_CPU_CAPABILITY" not in portable.for_others()
    assert portable.for_others()["ONEDNN_MAX_CPU_ISA"] == "AVX2"
