"""Which stretch of calls is a program's step: sequences of calls written down by hand.

A letter is a call: "g" takes the parameters and a sum of gradients and gives the sum; "u" takes
both and gives the parameters; "t" is a whole training step; "e" an evaluation of the parameters;
"d" makes a batch of nothing that is kept; "q" calls the function of "t" for another model, "s".
An "E" is an evaluation, and a "T" a training step, on a large batch that the host puts on devices;
"k" makes a batch of a random key, and the next key; "m" computes a mask of the parameters, which
"x" takes to train them and "s".  "v" is a step of an environment, whose state is large, by the
parameters, and "f" a training step on all data, which are the same each time.  "h" evaluates
them on other data, also the same each time.  "b" trains the parameters for another model, which "c"
trains.  "l" makes all data.  Without "i" the parameters are the host's until they are trained.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.jax.programs.operand_sizes import Given, Made
from flint.frontends.jax.programs.periods import Periods

SIZE = 1000
TAKES = {"g": "ps", "u": "ps", "t": "p", "q": "s", "e": "p", "d": "", "i": "", "E": "p", "T": "p"}
TAKES |= {"k": "k", "x": "psm", "m": "p", "v": "pn", "f": "po", "b": "pz", "c": "pz", "h": "py"}
TAKES |= {"l": ""}
GIVES = {"g": "s", "u": "ps", "t": "p", "q": "s", "e": "", "d": "", "i": "ps", "E": "", "T": "p"}
GIVES |= {"k": "k", "x": "ps", "m": "m", "v": "n", "f": "p", "b": "p", "c": "z", "h": ""}
GIVES |= {"l": "o"}
#: What has other sizes and shapes than the rest.
SIZES = {"n": 20 * SIZE, "o": 2 * SIZE, "z": 3 * SIZE, "y": 4 * SIZE}
GRADIENTS = "gtqTxfbc"
#: Calls that are given a batch of the host's, and how large it is.
BATCHES = {"E": 20 * SIZE, "T": 20 * SIZE}
#: Calls of one function.
SAME = {"q": "t"}


def periods_of(text):
    """The periods of a program, and the first whole one with the call that completed it.

    Pairs of a letter and the number of a thread are the calls of several.
    """
    made = dict.fromkeys("pskmn", 0) | {"o": None, "z": None, "y": None}
    if all(one[0] != "i" for one in text):
        made["p"] = None
    periods, first = Periods(), None
    for number, (letter, thread) in enumerate((*one, 0)[:2] for one in text):
        since = {"k": None}  # a random key
        given_ = tuple(
            Given(
                f"{name}{made[name]}", since.get(name, made[name]), SIZES.get(name, SIZE),
                (SIZES.get(name, SIZE),),
            )
            for name in TAKES[letter]
        )  # fmt: skip
        if letter in BATCHES:
            given_ += (Given(f"batch {number}", None, BATCHES[letter]),)
        key = SAME.get(letter, letter)
        gradients = letter in GRADIENTS
        found = periods.add(Made(key, letter, letter != "i", given_, thread, gradients))
        made |= dict.fromkeys(GIVES[letter], number + 1)
        if found is not None and found.certain and first is None:
            first = found, number
    return periods, first


def test_a_training_loop_is_found_when_its_step_has_run_twice():
    _, (period, completed) = periods_of("ittttt")
    assert (period.first, period.length, completed) == (1, 1, 2)
    assert list(period.calls_of(2)) == [2]


def test_gradients_that_are_summed_are_not_a_step_alone():
    _, (period, completed) = periods_of("i" + "gggu" * 3)
    assert (period.first, period.length, completed) == (1, 4, 8)
    assert list(period.calls_of(2)) == [5, 6, 7, 8]


def test_an_evaluation_before_the_training_is_not_its_step():
    _, (period, _) = periods_of("i" + "e" * 50 + "tttt")
    assert (period.name, period.first) == ("t", 51)


def test_an_evaluation_is_the_step_of_a_program_that_does_nothing_else():
    periods, first = periods_of("ieeee")
    assert first is None
    assert (periods.best().name, periods.best().count) == ("e", 4)


def test_training_with_an_evaluation_now_and_then_is_the_training():
    periods, (period, _) = periods_of("i" + "ttteet" * 4)
    assert (period.name, period.length) == ("t", 1)
    assert periods.best().whole


def test_an_evaluation_is_the_step_rather_than_what_makes_its_batches():
    periods, _ = periods_of("i" + "dddde" * 4)
    assert periods.best().name == "e"


def test_two_models_in_turn_are_a_step_of_two_calls():
    _, (period, completed) = periods_of("i" + "tq" * 3)
    assert (period.first, period.length, completed) == (1, 2, 4)


def test_an_evaluation_of_large_batches_is_not_a_training_step():
    _, (period, _) = periods_of("i" + "E" * 9 + "TTT")
    assert (period.name, period.first, period.sizes.fresh) == ("T", 10, 20 * SIZE)


def test_an_environments_steps_are_no_training_though_they_renew_their_large_state():
    _, (period, completed) = periods_of("i" + "v" * 50 + "tt")
    assert (period.name, period.length, completed) == ("t", 1, 52)
    _, (period, _) = periods_of("i" + ("v" * 200 + "t") * 3)
    assert period.length == 201
    periods, first = periods_of("i" + "v" * 5)
    assert (first, periods.best().name) == (None, "v")


def test_parameters_that_the_host_has_made_are_unchanged_until_they_are_trained():
    _, (period, _) = periods_of(("v" * 50 + "t") * 3)
    assert period.length == 51
    _, (period, completed) = periods_of("gggu" * 3)
    assert (period.first, period.length, completed) == (0, 4, 7)


def test_data_that_stay_the_same_are_no_parameters():
    _, (period, completed) = periods_of("f" * 20)
    assert (period.name, completed, period.sizes.same) == ("f", 15, 2 * SIZE)
    assert not period.is_little(period.sizes.same)
    _, (period, completed) = periods_of("il" + "f" * 20)  # neither are those that a program makes
    assert (period.name, completed, period.sizes.same) == ("f", 17, 2 * SIZE)
    periods, first = periods_of("i" + "fffh" * 4)
    assert (first, periods.best().name, periods.best().length) == (None, "f", 1)
    _, (period, completed) = periods_of("bbbc" * 3)  # a critic, and what it criticises
    assert (period.length, completed) == (4, 7)


def test_what_is_computed_anew_once_in_many_steps_is_not_part_of_the_step():
    """A mask of the parameters "m" that the step "x" only reads; a sum of 200 gradients is one."""
    periods, _ = periods_of("im" + ("x" * 200 + "m") * 3)
    assert periods.best().whole and periods.best().length == 201
    [period] = [one for one in periods.found.values() if one.often]
    assert (period.name, period.length) == ("x", 1)
    periods, (period, _) = periods_of("i" + ("g" * 200 + "u") * 3)
    assert (period.length, period.often) == (201, False)
    assert not any(one.often for one in periods.found.values())


def test_rounds_that_leave_much_unchanged_are_not_counted_in_pairs():
    periods, first = periods_of("im" + "dx" * 40)
    assert first is None
    assert [(one.name, one.length, one.count) for one in periods.found.values()] == [("x", 2, 40)]


def test_keys_that_a_loader_renews_do_not_make_it_the_step():
    _, (period, _) = periods_of("i" + "k" * 9 + "ttt")
    assert period.name == "t"


def test_a_thread_that_makes_batches_at_its_own_pace_hides_no_step():
    calls = [("i", 0), *[("d", 1)] * 5, ("t", 0), ("d", 1), ("t", 0), *[("d", 1)] * 2, ("t", 0)]
    _, (period, completed) = periods_of(calls)
    assert (period.name, period.thread, completed) == ("t", 0, 8)
    assert [calls[number] for number in period.calls_of(1)] == [("t", 0)]


def test_what_other_threads_call_is_counted():
    calls = [("i", 0), ("d", 1), ("t", 0), ("d", 1), ("d", 1), ("e", 1), ("t", 0), ("t", 0)]
    periods, (period, _) = periods_of(calls)
    assert periods.of_other_threads(period) == {"d": 3, "e": 1}


def test_calls_that_never_repeat_are_not_a_step():
    periods, first = periods_of("itei")
    assert first is None
    assert periods.best() is None


def test_a_function_that_is_called_once_is_one_when_its_name_is_given():
    periods, _ = periods_of("ite")
    period = periods.single(lambda name, _: name == "t")
    assert (period.count, list(period.calls_of(1)), period.whole) == (1, [1], False)
    assert periods.single(lambda name, _: name == "i") is None  # an op


@given(st.text("gute", min_size=1, max_size=6), st.integers(2, 5), st.text("gute", max_size=5))
def test_a_period_is_a_stretch_that_equals_the_one_before_it(unit, times, before):
    text = before + unit * times
    periods, _ = periods_of(text)
    assert periods.found
    for period in periods.found.values():
        for number in range(1, period.count):
            one, other = period.calls_of(number), period.calls_of(number + 1)
            assert [text[n] for n in one] == [text[n] for n in other]
