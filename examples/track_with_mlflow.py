"""An experiment, or a training, followed by MLflow: pip install mlflow, then `mlflow ui` shows the runs."""

import sys

import mlflow

from whorl import runs
from whorl.progress import Tracker


class MLflow(Tracker):
    """Give it to ``runs.run`` or ``whorl.harden`` as track=."""

    def begin(self, name, settings):
        mlflow.start_run(run_name=name)
        mlflow.log_dict(dict(settings), "settings.json")

    def log(self, step, values):
        # MLflow's names may not hold a plus, as in "resnet18+jpeg".
        mlflow.log_metrics({name.replace("+", "-"): value for name, value in values.items()}, step=step)

    def end(self, files):
        for path in files.values():
            mlflow.log_artifact(str(path))
        mlflow.end_run()


if __name__ == "__main__":
    runs.run(runs.read_declaration(sys.argv[1]), sys.argv[2], track=MLflow())
