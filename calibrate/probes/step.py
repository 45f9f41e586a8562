"""Measures real training steps; runs in the user's Python. The frameworks are in on_tensorflow.py, on_jax.py and on_torch.py.

It measures either a Keras model (``--model FILE.py:FUNCTION``) or the user's own training step (``--step FILE.py:FUNCTION``).

``--model``: FUNCTION() returns a Keras model, or ``(model, loss, input_spec)``.
    loss: a function of ``(y_true, y_pred)``, or the name of one. Left out: the one given
    to ``compile``, else the mean of the squared outputs. The optimizer is the one given
    to ``compile``, else SGD.
    input_spec, without the batch dimension: a ``tf.TensorSpec`` (or a structure of them)
    for x; or a pair ``(x_spec, y_spec)``; or a function ``batch -> (x, y)``. Left out:
    x from ``model.inputs``, y as the loss needs it. Integers are drawn below the size of
    the smallest embedding (inputs) or below the number of classes (targets).

``--step``: FUNCTION(batch_size) returns a callable without arguments that does one full
    training step (forward, ``tf.GradientTape``, optimizer) on a batch of that size. Let it
    return a tensor of the step, such as the loss.

The batch lies on the device before the clock starts: reading input is not measured.

calibrate/profiling.py gives the flags; calibrate/measurements.py has the records that go to ``--out``.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from . import machine, overheads, pacing, recording, training
from .recording import Recorder, UsageError, progress, tell
from .training import Step

WARM_UP_WINDOWS = 12
WARM_UP_AGREEMENT = 0.05
WARM_UP_LIMIT_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
OTHERS_S = 10.0
"""About what is measured besides steps, where steps are short."""
INSTRUMENTED = 1.3
"""About how much longer a step with clocks inside takes."""
TOGETHER_LIMIT_S = 300.0
SPLIT_WARM_UP = 3
LACKING = "the cost of parameter servers, ends of tf.data iterators and counts of operations are measured only under TensorFlow"


class Timing:
    """Times plain steps, each until the device has done all of it: warm-up, rounds over all batch sizes, rounds measured again."""

    def __init__(self, arguments: Any, recorder: Any, on: Any) -> None:
        self.arguments, self.recorder, self.on = arguments, recorder, on
        self.batches = [int(part) for part in arguments.batches.split(",")]
        self.first_s: dict[int, float] = {}
        self.usual_s: dict[int, float] = {}
        self.disturbed = False

    def timed(self, step: Step) -> float:
        """Seconds of a step."""
        return self._clocked(step)[0]

    def _clocked(self, step: Step) -> tuple[float, float]:
        """Seconds of a step, and processor seconds of all threads of this process in it."""
        start, used = time.perf_counter(), time.process_time()
        self.on.wait(step())
        return time.perf_counter() - start, time.process_time() - used

    def warm_up(self, batch: int, step: Step, limit_s: float | None = None) -> None:
        """Step until the medians of two windows in a row agree, or ``limit_s`` is over; the first step traces or compiles."""
        self.first_s[batch] = self._warm(batch, step)
        began, size, previous = time.perf_counter(), pacing.WINDOW, None
        for window in range(WARM_UP_WINDOWS):
            times = [self._warm(batch, step)]
            if limit_s is not None and window == 0:
                size = pacing.window_of(times[0], limit_s)
            times += [self._warm(batch, step) for _ in range(size - 1)]
            self.usual_s[batch] = median = statistics.median(times)
            if previous is not None and abs(median - previous) <= WARM_UP_AGREEMENT * previous:
                return
            if time.perf_counter() - began > (WARM_UP_LIMIT_S if limit_s is None else limit_s):
                return
            previous = median

    def _warm(self, batch: int, step: Step) -> float:
        seconds = self.timed(step)
        self.recorder.write("warmup", batch=batch, seconds=seconds)
        return seconds

    def time_plain(self, steps: dict[int, Step], total: int, left_s: float | None = None) -> None:
        """Rounds over all batch sizes, so that a drift of the machine affects all equally.

        A round that something else disturbed is measured again, later and later, since what
        disturbs often passes; both are kept. With ``left_s`` seconds for all rounds, no round begins that would end later,
        the first ones excepted, and disturbed rounds are measured again as long as that allows.
        """
        rounds = max(1, min(self.arguments.rounds, self.arguments.steps // 2))
        repeats = min(self.arguments.repeats, (rounds + 1) // 2)
        patient = left_s is not None and not self.arguments.accept
        judge, began, longest_s = machine.Judge(self.recorder), time.perf_counter(), 0.0
        done = turn = repeated = wanted = 0
        while wanted < rounds:
            begun = time.perf_counter()
            if left_s is not None and turn >= pacing.FEWEST_ROUNDS and begun - began + longest_s > left_s:
                break
            share = self.arguments.steps * (wanted + 1) // rounds - self.arguments.steps * wanted // rounds
            judge.begin()
            why = judge.end(turn, {batch: self._round_of(batch, step, turn, share) for batch, step in steps.items()})
            longest_s = max(longest_s, time.perf_counter() - begun)
            turn += 1
            if why:
                self.say_disturbed(f"round {turn}", why)
            if why and (patient or repeated < repeats):
                progress(done, total, "measured again: " + why)
                time.sleep(min(FIRST_PAUSE_S * 2 ** min(repeated, 10), LONGEST_PAUSE_S))
                repeated += 1
                continue
            wanted += 1
            done += share * len(steps)
            progress(done, total, f"round {wanted} of {rounds}")
        together = judge.all_rounds()
        if together is not None:
            self.recorder.write("load", stage="rounds", **together)

    def say_disturbed(self, when: str, why: str) -> None:
        """Tell the parent at once, and once, that something else disturbs."""
        if not self.disturbed:
            tell("disturbed", when=when, why=why)
        self.disturbed = True

    def _round_of(self, batch: int, step: Step, turn: int, count: int) -> float:
        """Time some steps of one batch size; returns their mean."""
        self.timed(step)  # the first after a change of batch size finds cold caches
        times = []
        for _ in range(count):
            seconds, cpu_s = self._clocked(step)
            times.append(seconds)
            self.recorder.write("step", batch=batch, round=turn, seconds=seconds, cpu_s=cpu_s)
        return statistics.mean(times)


class Probe(Timing):
    """One run: builds the steps, then measures them in turn."""

    def __init__(self, arguments: Any, recorder: Any, on: Any, start_up: Any) -> None:
        super().__init__(arguments, recorder, on)
        self.start_up = start_up
        self.made: Any = None
        self.split_steps = max(10, min(20, arguments.steps))
        self.split_warm_up = SPLIT_WARM_UP
        self._count()

    def _count(self) -> None:
        """Count the steps that are timed, for the progress."""
        kinds = 0 if self.arguments.plain else 2 if self.arguments.layers else 1
        self.done, self.total = 0, len(self.batches) * (self.arguments.steps + self.split_steps * kinds)

    def plain_steps(self) -> dict[int, Step]:
        """The step as the user wrote it, for each batch size."""
        arguments, on = self.arguments, self.on
        if arguments.step:
            factory = training.load_function(arguments.step)
            return {batch: training.custom_step(on.on_device, factory, batch) for batch in self.batches}
        builder = training.load_function(arguments.model)
        with on.on_device():
            built = builder()
        self.made = on.model_of(built, arguments.precision == "mixed_float16")
        if arguments.layers:
            with on.on_device():
                self.made.batch_of(self.batches[0])  # builds it
            with self.start_up.without():
                from . import layers

                layers.cut(self.made.model)  # what cannot be cut is refused before anything is measured
        return {batch: on.step_of(self.made, batch) for batch in self.batches}

    def make_plan(self) -> pacing.Plan | None:
        """Say what the budget has time for, and take it for what was asked; None without a budget."""
        arguments, once_s, split_steps = self.arguments, sum(self.usual_s.values()), self.split_steps
        if arguments.budget is None:
            return None

        def rest_s(steps: int) -> float:
            kinds = 2 if arguments.layers else 1
            return OTHERS_S + (1 + kinds) * sum(self.first_s.values()) + kinds * steps * INSTRUMENTED * once_s

        costs = pacing.Costs(
            self.start_up.elapsed_s(), once_s, rest_s(SPLIT_WARM_UP + split_steps), rest_s(pacing.SPLIT_WARM_UP + pacing.SPLIT_STEPS)
        )
        rounds = max(1, min(arguments.rounds, arguments.steps // 2))
        everything = pacing.planned(costs, arguments.runs_left, rounds, arguments.steps)
        plan = pacing.plan_of(costs, arguments.budget, arguments.runs_left, rounds, arguments.steps, plain=arguments.plain)
        self.recorder.write("plan", processes=plan.processes, rounds=plan.rounds, steps=plan.steps, whole=plan.whole)
        steps_s = {str(batch): seconds for batch, seconds in self.usual_s.items()}
        tell(
            "plan", **plan._asdict(), begun_s=costs.begun_s, steps_s=steps_s, everything_s=everything.total_s,
            fits=plan.total_s <= arguments.budget,
        )  # fmt: skip
        arguments.rounds, arguments.steps = plan.rounds, plan.steps
        if not plan.whole:
            self.split_steps, self.split_warm_up = pacing.SPLIT_STEPS, pacing.SPLIT_WARM_UP
        self._count()
        return plan

    def run(self) -> None:
        """Everything, the most valuable first."""
        arguments, recorder = self.arguments, self.recorder
        if arguments.budget is None:  # else the plan says how many steps there are
            progress(0, self.total, "build and warm up")
        steps = self.plain_steps()
        if not arguments.together:
            recorder.write("startup", seconds=self.start_up.seconds(), of_process=self.start_up.of_process)
            tell("begun")
        limit_s = None if arguments.budget is None else pacing.warm_up_limit_s(arguments.budget, arguments.runs_left, len(steps))
        watch = machine.Watch()
        for batch, step in steps.items():
            self.warm_up(batch, step, limit_s)
        if (share := machine.taken(watch.end(), machine.LIMIT)) is not None and limit_s is not None:
            self.say_disturbed("the warm-up", machine.others_took(share))
        if arguments.together:
            wait_for_all(arguments.together)
        plan = self.make_plan()
        progress(0, self.total, "rounds")
        self.time_plain(steps, self.total, None if plan is None else plan.until_s - self.start_up.elapsed_s())
        if arguments.together or arguments.plain:
            progress(self.total, self.total, "rounds")
            return
        for batch, step in steps.items():
            if (peak := self.on.peak_bytes(step)) is not None:
                recorder.write("memory", batch=batch, peak_bytes=peak)
        self.done = len(self.batches) * arguments.steps
        largest = self.split(steps)
        optimizer = type(self.made.optimizer).__name__ if self.made is not None else "the step's own"
        if arguments.backend != "tensorflow":
            recorder.write("note", optimizer=optimizer, split=self.on.remark, lacking=LACKING)
        else:
            overheads.server_cost(self.on.tf, self.made.optimizer if self.made else None, largest, 5, recorder)
            optimizer += "" if self.made is not None else "; server cost of SGD"
            recorder.write("note", optimizer=optimizer, instrumented_without_xla=bool(arguments.jit))
        if arguments.layers:
            self.layers()
        self.beside_steps(steps[self.batches[0]])
        if arguments.backend == "tensorflow":
            self.count(steps)

    def split(self, steps: dict[int, Step]) -> int:
        """How forward, backward and update share the time, and when gradients are ready. Returns the largest variable's bytes."""
        parts = {batch: self.on.split_of(self.made, batch, step) for batch, step in steps.items()}
        for index in range(-self.split_warm_up, self.split_steps):
            for batch, part in parts.items():
                for kind, fields in part.once():
                    if index >= 0:
                        self.recorder.write(kind, batch=batch, index=index, **fields)
                self.done += int(index >= 0)
            progress(self.done, self.total, "forward, backward, apply")
        variables = list(parts[self.batches[0]].variables())
        if not variables:
            how = "tf.GradientTape" if self.arguments.backend == "tensorflow" else "backward()"
            raise ValueError(f"no gradient was seen: the step must compute its gradients with {how}")
        for fields in variables:
            self.recorder.write("variable", **fields)
        return max(4, *(fields["size_bytes"] for fields in variables))

    def layers(self) -> None:
        """Each layer of the model: sizes from its graph, times from steps with clocks at the cuts."""
        from . import layers
        from .on_tensorflow import Stamps

        stamps = {batch: Stamps(self.on.tf, barrier=False) for batch in self.batches}
        passes = layers.Passes(self.on.tf, self.made)
        passes.write_sizes(self.recorder, self.batches)
        timed = {batch: passes.timed(batch, self.on.place, stamps[batch]) for batch in self.batches}
        for index in range(-self.split_warm_up, self.split_steps):
            for batch, step in timed.items():
                stamps[batch].reset()
                self.on.wait(step())
                if index >= 0:
                    forward, backward = passes.seconds(stamps[batch].times())
                    self.recorder.write("layers", batch=batch, index=index, forward_s=forward, backward_s=backward)
                    self.done += 1
            progress(self.done, self.total, "layers")

    def beside_steps(self, step: Step) -> None:
        """Ends of iterators, first evaluations and checkpoints, where the framework and the model let them be measured."""
        recorder, made, on = self.recorder, self.made, self.on
        of_tensorflow = self.arguments.backend == "tensorflow"
        if of_tensorflow:
            overheads.iterator_ends(on.tf, step, self.timed, recorder)
        if made is not None:
            batch = self.batches[0]
            overheads.evaluation(on.evaluation_of(made, batch), self.timed, batch, recorder)
            state = made.state() if of_tensorflow else made
            overheads.checkpoints(state, made.size_bytes, made.copied, self.arguments.out, recorder)
        elif not of_tensorflow:
            overheads.unmeasured("checkpoint", "your own step does not show what it trains", recorder)
        else:
            import numpy

            with overheads.or_said("checkpoint", recorder):  # it may depend on values, or on being called outside a graph
                variables = overheads.variables_of_step(on.tf, step)
                size_bytes = overheads.bytes_of(on.tf, variables)
                state = on.tf.train.Checkpoint(variables=variables)
                overheads.checkpoints(state, size_bytes, lambda: [numpy.array(each) for each in variables], self.arguments.out, recorder)

    def count(self, steps: dict[int, Step]) -> None:
        """Count what each step asks of a device; last, since tracing runs the user's Python once more."""
        from . import counting

        float_bytes = 4 if self.arguments.precision == "float32" else 2
        for batch, step in steps.items():
            try:
                self.recorder.write("counted", batch=batch, **counting.count(self.on.tf, step, float_bytes))
            except Exception as error:  # whatever it is, the measurement stands
                self.recorder.write("counted", batch=batch, why=(type(error).__name__ + ": " + str(error))[:500])


def wait_for_all(together: str) -> None:
    """Until as many processes as belong together have come here: each leaves a file in the folder."""
    folder, process, processes = together.rsplit(":", 2)
    with open(os.path.join(folder, process), "x", encoding="ascii"):
        pass
    began = time.monotonic()
    while len(os.listdir(folder)) < int(processes):
        if time.monotonic() - began > TOGETHER_LIMIT_S:
            raise TimeoutError(f"the other processes of this launch did not start within {TOGETHER_LIMIT_S:g} s")
        time.sleep(0.01)


def framework_of(arguments: Any) -> Any:
    """The framework on its device.

    Raises
    ------
    NotInstalledError
        This Python lacks it.
    UsageError
        What is asked for is not to be had under it.
    """
    backend = arguments.backend
    if backend == "tensorflow":
        from .on_tensorflow import TensorFlow

        return TensorFlow(arguments)
    if arguments.layers or arguments.jit:
        option = "jit" if arguments.jit else "layers"
        why = "a step is always compiled by XLA" if backend == "jax" and arguments.jit else "needs TensorFlow"
        raise UsageError(f"`{option}`: {why}, and the steps use {backend}: leave it out")
    if backend == "jax":
        if arguments.step:
            raise UsageError("`step`: under JAX your own compiled step shows no passes and no gradients: give a Keras model instead")
        from .on_jax import Jax

        return Jax(arguments.device)
    from .on_torch import Torch

    return Torch(arguments.device)


def main() -> int:
    """Run the probe; the exit status tells the parent who is at fault."""
    arguments = recording.asked(
        __doc__,
        model=None,
        step=None,
        batches="16,32,64",
        steps=50,
        rounds=10,
        repeats=5,  # disturbed rounds that are measured again, at most, without a budget
        budget=float,  # seconds for this process and those after it
        runs_left=1,  # this one and those after it
        plain=False,  # only time steps
        accept=False,  # disturbed rounds are fitted too: no time is spent on waiting for calm ones
        together=None,  # FOLDER:PROCESS:PROCESSES, each beginning to time when all have warmed up; plain steps only
        launch=int,  # number of this launch of several processes at once
        cores=None,  # numbers of the cores to run on
        backend="tensorflow",  # of Keras
        device=None,
        precision="float32",  # a policy of Keras
        jit=False,
        layers=False,  # each layer of a Keras model too
    )
    if arguments.cores:
        os.sched_setaffinity(0, [int(core) for core in arguments.cores.split(",")])
    start_up, watch = overheads.StartUp(), machine.Watch()

    def measure(recorder: Recorder) -> None:
        os.environ["KERAS_BACKEND"] = arguments.backend  # which a step of the user's own may import
        on = framework_of(arguments)
        of_tensorflow = arguments.backend == "tensorflow"
        keras = training.keras_of(arguments.backend) if arguments.model and not of_tensorflow else None
        with start_up.without():
            version = {} if of_tensorflow else {"keras": "" if keras is None else keras.__version__}
            recorder.write("fingerprint", **on.fingerprint(), **version)
            recorder.write("load", **machine.before_steps(on.kind, on.index, watch))
        if arguments.precision != "float32":
            if keras is None and not of_tensorflow:
                raise UsageError("`precision`: is a Keras policy; your own step sets its precision itself: leave it out")
            training.keras_of(arguments.backend).mixed_precision.set_global_policy(arguments.precision)
        Probe(arguments, recorder, on, start_up).run()

    return recording.run("step", arguments, measure, arguments.model or arguments.step)
