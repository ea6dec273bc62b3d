"""The compiled convolve-pool-activate computes what torch's own operations compute, forwards and backwards."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rebafl.models import kernels
from rebafl.models.kernels import pooled_conv, torch_only


@pytest.fixture(autouse=True)
def _compiled():
    assert kernels.name() == "compiled", "these tests need a C compiler"


def case(images, channels, height, width, outputs, side, padding, *, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(*shape, dtype=dtype, generator=random)

    x = tensor(images, height, width, channels).permute(0, 3, 1, 2)
    return [x, tensor(outputs, channels, side, side), tensor(outputs)], padding


def pooled(inputs, padding):
    x, weight, bias = inputs
    return pooled_conv(x, weight, bias, padding)


def result(inputs, padding, needs_x=True):
    """The output and the gradients of a sum that weighs every output differently."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    leaves[0].requires_grad_(needs_x)
    out = pooled(leaves, padding)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), wanted)]


def both(inputs, padding, **options):
    with torch_only():
        expected = result(inputs, padding, **options)
    return result(inputs, padding, **options), expected


@given(
    images=st.integers(1, 3),
    channels=st.sampled_from([1, 2, 3, 4, 8, 16, 21, 32]),
    extra=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    outputs=st.sampled_from([8, 16, 24]),
    side=st.sampled_from([1, 2, 3, 4, 5, 7]),
    padding=st.integers(0, 2),
    needs_x=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_any_shape_gives_what_torch_gives(images, channels, extra, outputs, side, padding, needs_x):
    height, width = side + extra[0], side + extra[1]
    found, expected = both(*case(images, channels, height, width, outputs, side, padding), needs_x=needs_x)
    assert len(found) == len(expected) == 3 + needs_x
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(50, 1, 28, 28, 16, 5, 0), (50, 16, 12, 12, 32, 5, 1), (50, 32, 6, 6, 64, 3, 1)])
def test_in_single_precision_it_is_as_close_to_the_truth_as_torch(shape):
    inputs, padding = case(*shape, dtype=torch.float32)
    found, torchs = both(inputs, padding)
    true = result([each.double() for each in inputs], padding)
    for ours, theirs, exact in zip(found, torchs, true, strict=True):
        assert ours.dtype == torch.float32
        scale = exact.abs().max()
        assert (ours - exact).abs().max() / scale <= 2 * (theirs - exact).abs().max() / scale + 1e-6


def test_the_gradients_are_those_of_finite_differences():
    inputs, padding = case(1, 2, 5, 6, 8, 3, 1)
    leaves = [each.requires_grad_() for each in inputs]
    assert torch.autograd.gradcheck(lambda *each: pooled(each, padding), leaves)


def test_of_equal_values_the_first_gets_the_gradient():
    inputs = [torch.ones(1, 1, 4, 4), torch.ones(8, 1, 1, 1), torch.zeros(8)]
    found, expected = both(inputs, 0)
    assert torch.equal(found[1], expected[1])
    assert found[1][0, 0].nonzero().tolist() == [[0, 0], [0, 2], [2, 0], [2, 2]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    inputs, padding = case(2, 3, 8, 8, 8, 3, 1)
    inputs[0][1, 0, 3, 3] = bad
    found, expected = both(inputs, padding)
    assert torch.equal(found[0].isfinite(), expected[0].isfinite())
    assert not found[2].isfinite().all()  # the weights' gradient


def test_one_image_alone_gives_the_bits_it_gives_in_a_batch():
    inputs, padding = case(6, 16, 12, 12, 32, 5, 1, dtype=torch.float32)
    whole = pooled(inputs, padding)
    alone = pooled([inputs[0][3:4], *inputs[1:]], padding)
    assert torch.equal(whole[3:4], alone)


def test_other_memory_layouts_and_types_work():
    inputs, padding = case(2, 3, 9, 9, 8, 3, 1)
    plain = [each.contiguous() for each in inputs]
    for ours, theirs in zip(result(plain, padding), result(inputs, padding), strict=True):
        assert torch.equal(ours, theirs)
    half = [each.bfloat16() for each in inputs]
    assert pooled(half, padding).dtype == torch.bfloat16
    odd = case(2, 3, 9, 9, 5, 3, 1)[0]  # outputs that are no whole vector
    assert pooled(odd, padding).shape == (2, 5, 4, 4)


def test_without_a_compiler_torch_computes(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    inputs, padding = case(2, 3, 9, 9, 8, 3, 1)
    expected = result(inputs, padding)
    kernels.library.cache_clear()
    try:
        assert kernels.name() == "torch"
        for ours, theirs in zip(result(inputs, padding), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    finally:
        monkeypatch.undo()
        kernels.library.cache_clear()


def test_code_that_others_could_have_put_there_is_not_run(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "rebafl" / "kernels"
    folder.mkdir(parents=True)
    try:
        folder.chmod(0o777)
        kernels.library.cache_clear()
        assert kernels.name() == "torch"
        folder.chmod(0o700)
        kernels.library.cache_clear()
        assert kernels.name() == "compiled"
        assert len(list(folder.iterdir())) == 1
    finally:
        monkeypatch.undo()
        kernels.library.cache_clear()


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A cache of its own for compiled code; where its one file lies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.library.cache_clear()
    assert kernels.name() == "compiled"
    (path,) = (tmp_path / "rebafl" / "kernels").iterdir()
    kernels.library.cache_clear()
    yield path
    monkeypatch.undo()
    kernels.library.cache_clear()


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "shorter by a byte": lambda data: data[:-1],
    "one bit": lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_compiled_again(own_cache, damage):
    """In a process of its own: loading some of these would end it."""
    whole = own_cache.read_bytes()
    own_cache.unlink()  # another file under its name: this process has loaded the old one
    own_cache.write_bytes(DAMAGE[damage](whole))
    code = "import torch; from rebafl.models import kernels; print(kernels.name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "compiled\n")
    assert own_cache.read_bytes() == whole
    assert [path.name for path in own_cache.parent.iterdir()] == [own_cache.name]


def test_no_option_of_the_compiler_decides_about_a_bit(monkeypatch, own_cache):
    """Each rounding is written out: the compiler may be free to fuse, or hardly optimise."""
    inputs, padding = case(3, 1, 12, 12, 16, 1, 0, dtype=torch.float32)  # one vector a row: GCC likes to split its sums
    wide = case(3, 16, 12, 12, 32, 5, 1, dtype=torch.float32)
    expected = [*result(inputs, padding), *result(*wide)]
    for flags in (("-O3", "-ffp-contract=fast"), ("-O1", "-ffp-contract=off"), ("-O3", "-ffp-contract=on")):
        monkeypatch.setattr(kernels, "FLAGS", (*flags, "-shared", "-fPIC"))
        for target in (kernels._target(), kernels.NATIVE):
            monkeypatch.setattr(kernels, "_target", lambda target=target: target)
            kernels.library.cache_clear()
            assert kernels.name() == "compiled"
            assert all(map(torch.equal, [*result(inputs, padding), *result(*wide)], expected))
    assert len(list(own_cache.parent.iterdir())) > 1, "they were compiled anew"
