"""NumPy's numbers and arrays, and what C makes of a rank, against Python on every rank."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import numpy as np

from flint.frontends.torch import context
from flint.frontends.torch.shims import own_calls, own_memory
from flint.frontends.torch.shims.own_values import everywhere
from tests.frontends.torch.followed_expressions import WORLD, asked, plainly, verdict

ARRAYS = """
np.int64(rank)
np.int32(rank) + 1
np.float32(rank) / 2
np.arange(W)[rank]
np.arange(2 * W).reshape(W, 2)[rank][1]
np.arange(2 * W).reshape(W, 2)[rank, 1]
np.arange(2 * W).reshape(2, W)[:, rank].sum()
np.array([rank])[0]
np.array([[rank, 2], [3, 4]]).T[0, 0]
np.array([rank, 1]).sum()
np.array([rank]).tolist()[0]
np.array(rank).item()
np.array_split(np.arange(4 * W), W)[rank][0]
np.full(3, rank)[1]
np.arange(W)[np.arange(W) == rank][0]
(np.arange(W) == rank).argmax()
(rank == np.arange(W)).nonzero()[0][0]
np.where(np.arange(W) == rank)[0][0]
np.unravel_index(rank, (5, 4))[0]
np.unravel_index(rank, (5, 4))[1]
np.mod(rank, 8)
np.arange(rank, rank + 3)[0]
np.linspace(0, rank, 3)[2]
np.eye(W, dtype=int)[rank].argmax()
np.isin(rank, [7]).item()
int(np.log2(rank + 1))
int(np.array([rank])[0]) // 2
np.random.default_rng(0).permutation(W)[rank]
np.concatenate([[rank], [1]])[0]
np.array([rank]).astype(np.float32)[0]
np.searchsorted(np.arange(0, W, 4), rank)
np.roll(np.arange(W), rank)[0]
[3 * i for i in range(W)][np.int64(rank)]
range(5, 60)[np.int32(rank)]
{3: 1, 7: 2}.get(np.int64(rank) + 0, 5)
[i for i in np.array([rank, 5])][0]
bool(np.array([rank]) > 4)
divmod(np.int64(rank), 3)[1]
torch.tensor(np.array([rank])).item()
torch.tensor([rank, 2]).numpy()[0]
torch.full((2,), np.int64(rank))[1].item()
"""
NUMBERS = """
"-".join([str(rank)])
"-".join(str(i) for i in [rank, 1])
",".join(map(str, [rank]))
"stage" + str(rank)
str(rank) + "x"
str(rank).zfill(3)
str(rank)[-1]
("%03d" % rank)[1:]
f"stage{rank}"[5:]
f"stage{rank}".endswith("e7")
f"stage{rank}".split("e")[1]
f"stage{rank}".upper()
int(f"{rank}") + 1
int(str(rank)[-1])
len(str(rank))
str(rank) in "172"
repr(rank)
format(rank, "03d")
hex(rank)
bin(rank).count("1")
chr(65 + rank)
ord(chr(65 + rank))
"ab" * rank
rank.bit_length()
rank.bit_count()
rank.real
rank.conjugate()
operator.index(rank)
math.gcd(rank, 14)
math.log2(rank + 1)
math.prod([rank, 2])
float(rank)
bisect.bisect_left(list(range(0, W, 3)), rank)
"""
OBJECTS = """
json.loads(json.dumps(rank))
json.loads(json.dumps({"stage": [rank, 1]}))["stage"][0]
pickle.loads(pickle.dumps(rank))
pickle.loads(pickle.dumps({"stage": rank}))["stage"]
int(hashlib.md5(str(rank).encode()).hexdigest(), 16) % 4
hashlib.sha256(f"stage{rank}".encode()).digest()[0]
zlib.crc32(str(rank).encode()) % 4
base64.b64encode(str(rank).encode()).decode()
re.match(r"stage([0-9]+)", f"stage{rank}").group(1)
re.search(r"([0-9])$", f"stage{rank}")[1]
re.findall(r"[0-9]+", f"stage{rank}x")[0]
(re.match(r"stage1[0-9]", f"stage{rank}") is not None)
bytes([rank])
rank.to_bytes(2, "little")
struct.pack("i", rank)
str(rank).encode() + b"x"
int(hex(rank), 16)
pow(3, rank, 7)
getattr(operator, ["add", "sub"][rank // 7 % 2])(5, 3)
hasattr(math, f"log{rank}")
torch.arange(W).chunk(4)[rank % 4][0].item()
torch.arange(W).split(5)[rank // 5].tolist()[1]
[torch.tensor([i, 3]) for i in range(W)][rank].sum().item()
yaml.safe_load(f"stage: {rank}")["stage"]
yaml.load(yaml.dump([rank, 1]), yaml.CSafeLoader)[0]
ast.literal_eval(f"[{rank}, 1]")[0]
eval(f"{rank} + 1")
eval("rank + 1")
re.compile(r"s([0-9]+)").match(f"s{rank}").group(1)
re.compile("a").sub(f"{rank}", "abc")
re.compile("[0-9]+").findall(f"s{rank}x")[0]
shlex.split(f"--stage {rank}")[1]
string.Template("s$r").substitute(r=rank)
parsed(argparse.ArgumentParser(), ["--stage", f"{rank}"]).stage
parsed(argparse.ArgumentParser(), [f"--stage={rank}"]).stage
"a".replace("a", str(rank))
"abc".center(rank)
"stage1x".startswith(f"stage{rank}")
"%(r)d-%(r)s" % {"r": rank}
list(range(W))[-rank]
int.from_bytes(rank.to_bytes(4, "little"), "little")
os.path.basename(f"stages/{rank}")
urllib.parse.quote(f"stage {rank}")
binascii.crc32(str(rank).encode())
re.compile("-").split(f"a-{rank}")[1]
"""
TOLD = """
bytearray([rank])[0]
array.array("i", [rank])[0]
"abcdefghijklmnopqrstuvwxyz"[rank]
range(5, 60)[rank]
list(range(W)).pop(rank)
(lambda d: (d.rotate(rank), d[0])[1])(collections.deque(range(W)))
eval(f"list(range({rank}, 40))")[0]
len([0] * rank)
len(list(itertools.islice(range(100), rank)))
len(list(itertools.repeat(1, rank)))
list(enumerate([5], rank))[0][0]
[*range(rank, W)][0]
complex(rank)
operator.itemgetter(rank)(range(W))
ctypes.c_int(rank).value
datetime.timedelta(days=rank).days
datetime.date(2020, 1, 1 + rank).day
sum(1 for _ in range(np.int64(rank)))
torch.linspace(0, 1, rank + 2).numel()
torch.eye(rank + 1).numel()
torch.nn.functional.pad(torch.ones(3), (0, rank)).numel()
torch.ones(2).tile(rank + 1).numel()
"""


def _each(expressions):
    return expressions.split("\n")[1:-1]


@pytest.fixture(autouse=True)
def begun(monkeypatch):
    before = context.capture()
    yield
    context.begin(before)


@pytest.mark.parametrize("expression", [*_each(ARRAYS), *_each(NUMBERS), *_each(OBJECTS)])
def test_what_c_makes_of_a_rank_tells_ranks_apart_as_python_does(expression):
    assert verdict(expression) == "followed"


@pytest.mark.parametrize("expression", _each(TOLD))
def test_what_is_not_followed_is_told(expression):
    assert verdict(expression)


def everywhere_of(expression):
    return np.asarray(everywhere(asked(expression)[0])).tolist()


@pytest.mark.parametrize(
    "expression",
    ["np.int64(rank) * 3 - 1", "np.array([rank, 5]).max()", "np.uint8(rank) + np.uint8(1)"],
)
def test_a_number_of_numpys_knows_that_of_every_rank(expression):
    assert everywhere_of(expression) == plainly(expression)
    assert asked(expression)[0].dtype == plainly(expression)[0].dtype


def test_what_is_written_into_an_array_is_written_on_every_rank():
    found, _ = asked(
        "(a := np.array([rank, 1]), v := a[1:], v.__setitem__(0, 4), a.__iadd__(1), a.sum())[-1]"
    )
    assert everywhere(found).tolist() == [rank + 6 for rank in range(WORLD)]
    assert found == 3 + 6


def test_an_array_of_the_programs_own_is_written_once():
    found, _ = asked(
        "(a := np.arange(40).reshape(W, 2), r := a[rank], r.__iadd__(1), a.tolist())[-1]"
    )
    want = np.arange(40).reshape(WORLD, 2)
    want[3] += 1
    assert found == want.tolist()


def test_what_an_array_of_all_ranks_is_given_by_a_rank_is_told():
    found, seen = asked("(a := np.zeros(W, int), np.put(a, rank, 1), a.argmax())[-1]")
    assert found == 3 and seen.unseen


def test_iterators_and_files_are_used_once():
    """What may not be called again is not: the second rank would get the second item."""
    found, _ = asked("(i := iter(range(9)), list(enumerate(i, rank))[0], next(i, 'none'))[1:]")
    assert found == ((3, 0), "none")


def test_more_ranks_than_are_made_are_told_where_they_are_read(monkeypatch):
    monkeypatch.setattr(own_calls, "MOST_KINDS", 4)
    assert everywhere_of("np.int64(rank) + 1") == list(range(1, 21))
    found, seen = asked("np.array([rank])[0] == 7")
    assert not found and seen.unseen


def test_long_arrays_are_data():
    found, seen = asked("np.arange(rank, rank + 100)[5]")
    assert found == 8 and type(found) is np.int64
    assert not list(seen.evidence.all()) and not seen.unseen


def test_arrays_pickle_and_print_as_numpys():
    for made in ("repr(np.array([rank]))", "str(np.int64(rank))", "np.array([rank]).dtype.name"):
        assert asked(made)[0] == plainly(made)[3]
    import pickle

    array, _ = asked("np.array([rank])")
    assert type(pickle.loads(pickle.dumps(array))) is np.ndarray
    assert type(np.asarray(array)) is np.ndarray and isinstance(array, np.ndarray)


def test_a_tensor_of_an_arrays_memory_holds_the_rank(monkeypatch):
    import torch

    plain = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", own_memory.shared(plain))
    assert verdict("torch.from_numpy(np.array([rank])).item()") == "followed"


def test_bytes_of_the_rank_are_pythons(tmp_path):
    made, _ = asked('pickle.dumps({"stage": rank})')
    plain = plainly('pickle.dumps({"stage": rank})')[3]
    assert made == plain and isinstance(made, bytes) and type(made) == bytes  # noqa: E721
    (tmp_path / "state").write_bytes(made)
    assert (tmp_path / "state").read_bytes() == plain


def test_what_is_written_to_a_file_or_looked_at_by_nobody_asks_nothing():
    for text in (
        'pickle.dumps({"stage": rank})', 'json.dumps({"stage": rank})', 'struct.pack("i", rank)',
        "hashlib.md5(str(rank).encode()).hexdigest()",
    ):  # fmt: skip
        _, seen = asked(text)
        assert not list(seen.evidence.all()) and not seen.unseen


def test_what_is_written_at_the_ranks_place_is_told():
    for made in ("[0] * W", "np.zeros(W, int)"):
        lines = f"(a := {made}, write(a, rank), a[0])[-1]"
        found, seen = asked(lines, "def write(a, place):\n    a[place] = 1\n")
        assert found == 0 and seen.unseen == {
            "the own rank is the place where a list is written at train.py:12"
        }
