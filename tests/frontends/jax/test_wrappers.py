"""Functions around a jit: what is donated, sharded, static and optional there is so in a capture.

The oracle is the module that JAX compiles when the same function is called: which parameter lies in
which output's buffer, and how many bytes that saves.
"""

from __future__ import annotations

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.errors import FlintError, UsageError
from flint.graph.kinds import NodeKind
from tests.support.shared import quick

SHAPE = (64, 32)
#: Bytes of a rank's part of the weights: a quarter.
SHARD = 64 * 32 * 4 // 4


def scaled(w, x):
    """As large as ``w``, and of no other array's size."""
    return w * x.sum()


donating = jax.jit(scaled, donate_argnums=0)


def setup(mesh):
    def abstract(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return abstract(SHAPE, "data"), abstract((16, 16), "data")


def captured(step, **options):
    made = flint.capture(step, mesh=(4, 2), axes=("data", "model"), setup=setup)
    return made.capture(options=options)


class OnlyLower:
    """As haliax's named_jit: it can be called and lowered, and not traced."""

    def __init__(self, function):
        self.__wrapped__ = function
        self._jitted = jax.jit(function, donate_argnums=0)

    def __call__(self, *arguments):
        return self._jitted(*arguments)

    def lower(self, *arguments):
        return self._jitted.lower(*arguments)


def counted(function):
    """As chex's assert_max_traces: a plain function by the same name around a jit."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


class Trainer:
    def __init__(self):
        self.step_of_a_method = jax.jit(self._step, donate_argnums=0, static_argnums=2)

    def _step(self, w, x, power):
        return w * (x**power).sum()

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def jitted_method(self, w, x):
        return scaled(w, x)

    def train(self, w, x):
        return self.step_of_a_method(w, x, 2)

    def __call__(self, w, x):
        return self.jitted_method(w, x)


def chosen(w, x):
    step = {"donating": donating}["donating"]
    return {"w": step(w, x)}


def by_keyword(w, x):
    return jax.jit(lambda *, w, x: scaled(w, x), donate_argnames="w")(x=x, w=w)


def logged(w, x):
    result = counted(donating)(w, x)
    jax.block_until_ready(result)
    return result, {"step": 3}


FORMS = {
    "only lower": OnlyLower(scaled),
    "a function around a jit": lambda w, x: donating(w, x),
    "a wrapper of its name": counted(donating),
    "a wrapper of a wrapper": counted(counted(OnlyLower(scaled))),
    "a partial": functools.partial(donating),
    "a partial with an argument": functools.partial(
        jax.jit(lambda scale, w, x: scale * scaled(w, x), donate_argnums=1), 2.0
    ),
    "a method": Trainer().train,
    "an object": Trainer(),
    "equinox": eqx.filter_jit(scaled, donate="all"),
    "from a table": chosen,
    "by keyword": by_keyword,
    "logged": logged,
}


def aliased(step):
    """(parameter, bytes) of the buffers that are reused when JAX compiles the step and runs it."""
    [text] = compiled_texts(step)
    head = text.splitlines()[0]
    found = re.search(r"input_output_alias=\{(.*?\))[^)]*\}", head)
    return [int(n) for n in re.findall(r"\((\d+), \{\}", found[1])] if found else []


def compiled_texts(step, *arguments):
    """The modules that are compiled when a step is called, as XLA dumps them."""
    known = []
    arguments = arguments or (jnp.ones(SHAPE), jnp.ones((16, 16)))
    from jax._src import compiler  # the one place that all compiled programs pass

    before = compiler.backend_compile_and_load

    def compile_and_note(*args, **kwargs):
        made = before(*args, **kwargs)
        known.extend(module.to_string() for module in made.hlo_modules())
        return made

    compiler.backend_compile_and_load = compile_and_note
    try:
        jax.block_until_ready(jax.tree.leaves(step(*arguments)))
    finally:
        compiler.backend_compile_and_load = before
    return known


@pytest.mark.parametrize("form", quick(FORMS, "only lower", "a method", "equinox"))
def test_donated_buffers_are_those_that_the_compiled_module_reuses(form):
    workload = captured(FORMS[form])
    jax.clear_caches()
    [program] = workload.programs
    assert program.calls == ()
    ours = [number for number, item in enumerate(program.inputs) if item.donated >= 0]
    assert ours == aliased(FORMS[form])
    assert workload.warnings == {}


def test_a_donated_step_needs_less_memory_by_what_it_donates():
    """The result is made from ``w`` elementwise; not donated, both are in memory, and with them the
    sum, of 4 bytes.  Donated, the most is in memory while the sum is reduced: it and its result.
    """
    donated = captured(FORMS["only lower"]).simulate().peak_memory_bytes
    kept = captured(lambda w, x: jax.jit(scaled)(w, x)).simulate().peak_memory_bytes
    assert kept - donated == SHARD + 4 - 8


@pytest.mark.parametrize("form", quick(FORMS, "a method"))
def test_inputs_have_the_names_of_the_steps_arguments(form):
    [program] = captured(FORMS[form]).programs
    assert [item.name for item in program.inputs][-2:] == ["w", "x"]


def communicated(workload):
    return [
        (item.kind, item.bytes_out)
        for item in workload.graph.tables.communications
        if (workload.graph.kind == NodeKind.COMMUNICATION).any()
    ]


def test_shardings_of_the_inner_jit_survive():
    """The result is asked for whole: a rank gathers 4 shards of 16 rows of 32 floats."""
    inner = jax.jit(lambda w: w * 2, out_shardings=P())
    workload = captured(lambda w, x: inner(w))
    assert communicated(workload) == [("all_gather", 64 * 32 * 4)]


def test_static_arguments_of_the_inner_jit_are_python_values():
    def powers(w, n):
        assert isinstance(n, int)
        return sum(w**k for k in range(n))

    inner = jax.jit(powers, static_argnums=1)
    [few, many] = [captured(lambda w, x, n=n: inner(w, n)) for n in (2, 5)]
    assert len(few.graph) < len(many.graph)


def test_donation_inside_of_a_jitted_function_has_no_effect_with_one_warning():
    def outer(w, x):
        return donating(donating(w, x), x)

    workload = captured(jax.jit(outer))
    assert aliased(jax.jit(outer)) == []
    assert all(item.donated < 0 for item in workload.programs[0].inputs)
    [(text, count)] = workload.warnings.items()
    assert count == 2
    assert "has no effect" in text
    assert "16.0 KiB of whole arrays" in text  # twice 64 x 32 floats


def test_compiler_options_are_kept_where_a_compiler_gets_them():
    options = {"xla_cpu_enable_fast_math": True}
    step = jax.jit(scaled, compiler_options=options)
    workload = captured(lambda w, x: step(w, x))
    [text] = workload.warnings
    assert "compiler options of jit (xla_cpu_enable_fast_math)" in text


def test_an_array_that_was_donated_is_used_as_in_a_run():
    def step(w, x):
        donating(w, x)
        return w + 1

    with pytest.raises(FlintError, match=r"test_wrappers.py:\d+: uses an array that was donated"):
        captured(step)
    with pytest.raises(RuntimeError, match="deleted"):
        step(jnp.ones(SHAPE), jnp.ones((16, 16)))


def test_an_array_that_was_donated_and_is_of_no_use_lives_on_as_in_a_run():
    def step(w, x):
        first = jax.jit(lambda w, x: w.sum() + x.sum(), donate_argnums=(0, 1))
        both = jax.jit(lambda w, x: (w + x.sum()).reshape(-1), donate_argnums=(0, 1))
        return first(w, x), both(w, x), x + 1

    assert captured(step)
    assert step(jnp.ones(SHAPE), jnp.ones((16, 16)))


def test_keywords_of_jit_for_what_is_jitted_already_are_refused():
    step = flint.capture(
        OnlyLower(scaled), mesh=(4, 2), axes=("data", "model"), setup=setup, donate_argnums=0
    )
    with pytest.raises(UsageError, match="donate_argnums: the function is already jitted"):
        step.capture()
