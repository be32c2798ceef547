"""The same programs, run for real on host devices: what XLA's partitioner made of their step.

XLA writes down each module after partitioning; a step's last one is that of its second call and
later, when parameters lie where the step itself has put them.  What is compared are all of its
instructions: opcodes, types, dims, groups.
"""

from __future__ import annotations

import collections
import re
from pathlib import Path

from jaxlib import xla_client

from flint.hlo.messages import parse_module
from tests.support.children import child_environment
from tests.support.warm import warm

try:
    from jax._src.lib import hlo
except ImportError:  # jax before 0.10.2
    from jaxlib import _jax as hlo

DUMP = "--xla_dump_hlo_as_proto --xla_dump_hlo_pass_re=.*spmd-partitioning.* --xla_dump_to="
NUMBER = re.compile(r"module_(\d+)\.(?:jit_)?(.*?)\.\d+\..*after_spmd-partitioning")
#: What names values and numbers channels, and what XLA's other passes add: of a single element's
#: reshapes, which move nothing, it drops some where a function was called and others where not.
NAMES = re.compile(
    r"^.*? = |%[\w.\-]+|[A-Za-z_][\w\-]*\.[\w.\-]+|(?<=\()get-tuple-element(?=[,)])"
    r"|(?<=[(, ])param(?=[,)])|channel_id=\d+,? ?|, sharding=\{[^}]*\}"
)
#: Runs a program with random bits as captures have them: for accelerators.
RUN = str(Path(__file__).parents[3] / "support/random_bits.py")
LEFT_OUT = re.compile(
    r"\b(parameter|tuple|get-tuple-element|copy|bitcast|constant)\(|\[1?\](\{0\})? reshape\("
)


def partitioned(program, folder, *arguments, devices=8, environment=None):
    """Run a program for real; function -> its last partitioned module, an ``HloProto``."""
    variables = child_environment(devices) | (environment or {})
    variables["XLA_FLAGS"] += f" {DUMP}{folder}"
    done = warm("jax").run([RUN, str(program), *map(str, arguments)], folder, variables)
    assert done.returncode == 0, done.stderr
    found = {}
    for path in Path(folder).glob("*after_spmd-partitioning*.hlo.pb"):
        match = NUMBER.match(path.name)
        number, name = int(match[1]), match[2]
        if number >= found.get(name, (-1, None))[0]:
            found[name] = number, path
    return {name: path.read_bytes() for name, (_, path) in found.items()}


def instructions(proto):
    """How often each instruction occurs in a module, without names of values."""
    module = xla_client.XlaComputation(parse_module(proto).SerializeToString()).get_hlo_module()
    text = module.to_string(hlo.HloPrintOptions.short_parsable())
    lines = (NAMES.sub("", line.strip()) for line in text.splitlines() if " = " in line)
    return collections.Counter(line for line in lines if not LEFT_OUT.search(line))


def modules(workload):
    """The functions that a captured step calls, in order, each with its module."""
    [program] = workload.programs
    if program.calls:
        return [(call.name.rstrip("_0123456789"), call.module[0]) for call in program.calls]
    return [(workload.input["function"], program.module[0])]
