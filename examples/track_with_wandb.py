"""An experiment, or a training, followed by Weights & Biases: pip install wandb, then log in, or WANDB_MODE=offline."""

import sys

import wandb

from whorl import runs
from whorl.progress import Tracker


class WeightsAndBiases(Tracker):
    """Give it to ``runs.run`` or ``whorl.harden`` as track=."""

    def begin(self, name, settings):
        self.run = wandb.init(project="whorl", name=name, config=dict(settings))

    def log(self, step, values):
        self.run.log(dict(values), step=step)

    def end(self, files):
        for what, path in files.items():
            self.run.log_artifact(str(path), name=what, type="whorl")
        self.run.finish()


if __name__ == "__main__":
    runs.run(runs.read_declaration(sys.argv[1]), sys.argv[2], track=WeightsAndBiases())
