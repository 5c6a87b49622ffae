"""Train on two machines, network namespaces that a cable joins, and disturb the training. Linux, as root.

    sudo python -m benchmarks.two_machines --trials 10 --output benchmarks/results/two_machines.json

Each machine runs the command of ``examples/two_machines.md``. Trials:

- ``killed``: all processes of one machine are killed (SIGKILL) at a random step. The other one has to go on from the
  newest checkpoint and to finish.
- ``returned``: as before, then the lost machine starts the same command again. Both have to finish, with the weights
  of a training that nobody disturbed and that had as many processes at the same steps.
- ``cut``: the cable is cut, and both machines have to end by themselves, with an error, within the time limit.

Prints a JSON report, and exits with 1 if a trial failed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks import machine
from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder

MACHINES = {"a": "10.87.0.1", "b": "10.87.0.2"}
WAIT_SECONDS = 10.0
"""``train.wait_seconds``: an exchange that takes longer ends the process."""
CLEAR_END_SECONDS = 60.0
"""Time limit of an end after the cable was cut: ``WAIT_SECONDS``, and torchrun's own time-outs and ending."""
RETRIES = 5
"""Attempts of TCP to send: 13 s. By default they last 15 minutes, and as long torchrun waits for its rendezvous."""
STEPS, SAVE_EVERY = 500, 50
SETTINGS = {"steps": STEPS, "save_every": SAVE_EVERY, "wait_seconds": WAIT_SECONDS, "tcp_retries2": RETRIES}
RENDEZVOUS = "join_timeout=60,last_call_timeout=2,keep_alive_interval=1,read_timeout=10"


def command(address: str, config: Path, run: Path, job: str, elastic: bool) -> list[str]:
    """The command of one machine. ``elastic``: go on with one machine, and restart after a loss."""
    nodes, restarts = ("1:2", "5") if elastic else ("2", "0")
    has_rendezvous = int(address == MACHINES["a"])
    return [
        *("torchrun", "--nnodes", nodes, "--nproc-per-node", "1", "--max-restarts", restarts, "--local-addr", address),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{MACHINES['a']}:29400", "--rdzv-id", job),
        *("--rdzv-conf", f"is_host={has_rendezvous},{RENDEZVOUS}"),
        *("-m", "--", "glassformer", "train", str(config), "--run", str(run)),
    ]


@dataclass
class Trial:
    """One training on two machines, its files in ``folder``."""

    folder: Path
    name: str
    elastic: bool
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        return self.folder / self.name

    def start(self, name: str) -> None:
        """Start the command on machine ``name``, in its network and in a session of its own."""
        program, *arguments = command(MACHINES[name], self.folder / "config.toml", self.run, self.name, self.elastic)
        environment = os.environ | {
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else a machine cannot come back
            "GLOO_SOCKET_IFNAME": f"glassformer-{name}",
            "OMP_NUM_THREADS": "1",
        }
        started = ["ip", "netns", "exec", f"glassformer-{name}", sys.executable, "-m", "torch.distributed.run"]
        assert program == "torchrun"
        with (self.folder / f"{self.name}_{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*started, *arguments], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """Kill every process in the network of machine ``name``."""
        found = subprocess.run(["ip", "netns", "pids", f"glassformer-{name}"], capture_output=True, text=True)
        for process in found.stdout.split():
            os.kill(int(process), signal.SIGKILL)
        self.processes[name].wait()

    def log(self, name: str) -> str:
        path = self.folder / f"{self.name}_{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def errors(self, name: str) -> list[str]:
        """Lines of the training's own errors."""
        return [line for line in self.log(name).splitlines() if line.startswith("glassformer: error")]

    def events(self) -> list[dict[str, Any]]:
        return RunFolder(self.run).metrics() if (self.run / "metrics.jsonl").exists() else []

    def wait_for(self, reached: Callable[[], bool], seconds: float = 180.0) -> float:
        """Seconds until ``reached``; ``TimeoutError`` after ``seconds``."""
        began = time.monotonic()
        while not reached():
            if time.monotonic() - began > seconds or self.ended():
                if reached():
                    break
                raise TimeoutError(f"{self.name}: not reached within {seconds:g} s, or before the end")
            time.sleep(0.05)
        return time.monotonic() - began

    def step(self) -> int:
        """The last reported step of the newest start."""
        return max((event["step"] for event in self.events()), default=0)

    def worlds(self) -> list[tuple[int, int]]:
        """First step and number of processes of each start that went on from a checkpoint, the first one at 0."""
        worlds = [(0, 2)]
        for event in self.events():
            for line in event.get("overrides", []):
                if line.startswith("processes: "):
                    worlds.append((event["step"], int(line.rpartition(" ")[2])))
        return worlds

    def ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes.values())


@contextmanager
def network() -> Iterator[None]:
    """Two network namespaces, joined by a pair of virtual Ethernet devices."""
    delete_network()  # of a run that was killed
    try:
        for name in MACHINES:
            call("ip", "netns", "add", f"glassformer-{name}")
        call("ip", "link", "add", "glassformer-a", "type", "veth", "peer", "name", "glassformer-b")
        for name, address in MACHINES.items():
            inside = ("ip", "-n", f"glassformer-{name}")
            call("ip", "link", "set", f"glassformer-{name}", "netns", f"glassformer-{name}")
            call(*inside, "address", "add", f"{address}/30", "dev", f"glassformer-{name}")
            call(*inside, "link", "set", f"glassformer-{name}", "up")
            call(*inside, "link", "set", "lo", "up")
            call("ip", "netns", "exec", f"glassformer-{name}", "sysctl", "-q", "-w", f"net.ipv4.tcp_retries2={RETRIES}")
        yield
    finally:
        delete_network()


def delete_network() -> None:
    for name in MACHINES:
        subprocess.run(["ip", "netns", "del", f"glassformer-{name}"], check=False, capture_output=True)


def call(*arguments: str) -> None:
    subprocess.run(arguments, check=True)


def killed(trial: Trial, draw: random.Random) -> dict[str, Any]:
    """Kill machine b. Machine a has the rendezvous, without which torchrun cannot go on."""
    lose_b(trial, draw)
    seconds = trial.wait_for(lambda: trial.worlds()[-1][1] == 1)
    trial.wait_for(trial.ended)
    return {"seconds_to_go_on": round(seconds, 1), "ok": finished(trial, "a"), "worlds": trial.worlds()}


def returned(trial: Trial, draw: random.Random) -> dict[str, Any]:
    """Kill machine b and start it again once machine a trains alone."""
    lose_b(trial, draw)
    alone = trial.wait_for(lambda: trial.worlds()[-1][1] == 1)
    trial.start("b")
    together = trial.wait_for(lambda: len(trial.worlds()) > 2 or trial.ended())
    trial.wait_for(trial.ended)
    equal = weights(trial.run) == reference(trial)
    ok = finished(trial, "a") and trial.processes["b"].returncode == 0 and equal and len(trial.worlds()) == 3
    seconds = {"seconds_to_go_on": round(alone, 1), "seconds_to_return": round(together, 1)}
    return {**seconds, "ok": ok, "bits_equal": equal, "worlds": trial.worlds()}


def cut(trial: Trial, draw: random.Random) -> dict[str, Any]:
    """Cut the cable; it is whole again for the next trial."""
    trial.wait_for(lambda: trial.step() >= draw.randint(SAVE_EVERY + 10, 3 * SAVE_EVERY))
    device = ("ip", "-n", "glassformer-a", "link", "set", "glassformer-a")
    call(*device, "down")
    try:
        seconds = trial.wait_for(trial.ended, 4 * CLEAR_END_SECONDS)
    finally:
        call(*device, "up")
    codes = {name: process.returncode for name, process in trial.processes.items()}
    errors = {name: trial.errors(name) for name in MACHINES}
    clear = all(len(lines) == 1 for lines in errors.values()) and all(codes.values())
    newest = RunFolder(trial.run).latest()
    whole = newest is not None and not newest.warnings
    ok = clear and whole and seconds <= CLEAR_END_SECONDS
    return {"seconds_to_end": round(seconds, 1), "ok": ok, "codes": codes, "errors": errors}


def lose_b(trial: Trial, draw: random.Random) -> None:
    step = draw.randint(SAVE_EVERY + 10, 3 * SAVE_EVERY)
    trial.wait_for(lambda: trial.step() >= step)
    time.sleep(draw.random() * 0.1)
    trial.kill("b")


def finished(trial: Trial, name: str) -> bool:
    newest = RunFolder(trial.run).latest()
    whole = newest is not None and newest.step == STEPS and not newest.warnings
    return trial.processes[name].returncode == 0 and whole


def weights(run: Path) -> str:
    newest = RunFolder(run).latest()
    return fingerprint(load_checkpoint(newest.path).weights) if newest is not None else ""


def reference(trial: Trial) -> str:
    """The weights of an undisturbed training with as many processes at the same steps."""
    run, worlds = trial.folder / f"{trial.name}_reference", trial.worlds()
    for number, (begin, size) in enumerate(worlds):
        end = worlds[number + 1][0] if number + 1 < len(worlds) else STEPS
        arguments = ["--run", str(run), f"train.max_steps={end}", "train.wait_seconds=300", "--processes", str(size)]
        more = ["--resume"] if begin else []
        program = [sys.executable, "-m", "glassformer", "train", str(trial.folder / "config.toml"), *arguments, *more]
        ended = subprocess.run(program, check=False, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"the undisturbed training ended with {ended.returncode}: {ended.stderr[-1000:]}")
    found = weights(run)
    shutil.rmtree(run)
    return found


def write_config(folder: Path) -> None:
    pairs = sample_corpus(2_000, seed=1)
    for language, texts in (("en", [pair.source for pair in pairs]), ("fr", [pair.target for pair in pairs])):
        (folder / f"train.{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    train = {"max_steps": STEPS, "save_every": SAVE_EVERY, "log_every": 10, "threads": 1, "wait_seconds": WAIT_SECONDS}
    values = {
        "model": {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1},
        "text": {"vocab_size": 400},
        "data": {"source": "en", "target": "fr", "train": [str(folder / "train")], "batch_tokens": 1500},
        "optimizer": {"schedule": "constant", "learning_rate": 1e-3, "warmup_steps": 50},
        "train": {**train, "keep_checkpoints": 1000},
    }
    (folder / "config.toml").write_text(tomli_w.dumps(values), encoding="utf-8")


TRIALS: dict[str, Callable[[Trial, random.Random], dict[str, Any]]] = {
    "killed": killed,
    "returned": returned,
    "cut": cut,
}


def run_trial(folder: Path, kind: str, number: int, seed: int) -> dict[str, Any]:
    trial = Trial(folder, f"{kind}-{number}", elastic=kind != "cut")
    try:
        for name in MACHINES:
            trial.start(name)
        result = TRIALS[kind](trial, random.Random(f"{seed} {kind} {number}"))
    except (TimeoutError, RuntimeError) as error:
        logs = {name: trial.log(name)[-3000:] for name in MACHINES}
        result = {"ok": False, "error": str(error), "worlds": trial.worlds(), "logs": logs}
    finally:
        for name in trial.processes:
            trial.kill(name)
    aborted = any(word in trial.log(name) for name in MACHINES for word in ("SIGABRT", "core dumped"))
    return {"kind": kind, "trial": number, **result, "ok": result["ok"] and not aborted, "aborted": aborted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--output", type=Path, help="file for the report")
    options = parser.parse_args()
    results, described = [], machine.describe()
    with tempfile.TemporaryDirectory(prefix="two-machines-") as name, network():
        folder = Path(name)
        write_config(folder)
        for number in range(options.trials):
            for kind in options.kinds:
                results.append(run_trial(folder, kind, number, options.seed))
                print(json.dumps(results[-1]), file=sys.stderr, flush=True)
                report = {
                    "machine": described,
                    "settings": {
                        "steps": STEPS,
                        "save_every": SAVE_EVERY,
                        "wait_seconds": WAIT_SECONDS,
                        "tcp_retries2": RETRIES,
                    },
                    "succeeded": Counter(result["kind"] for result in results if result["ok"]),
                    "trials": results,
                }
                if options.output:
                    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report["succeeded"]))
    sys.exit(0 if all(result["ok"] for result in results) else 1)


if __name__ == "__main__":
    main()
