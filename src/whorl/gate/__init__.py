"""A test of robustness that a team can put in front of every release: check, craft, evaluate, decide, report.

from whorl.gate import GateSettings, gate

done = gate(GateSettings(model="resnet18", data="photos", fail_above=60), "runs/gate")
print(done.verdict.sentence)
"""

from whorl.gate.baseline import Baseline, read_baseline
from whorl.gate.job import Gated, gate
from whorl.gate.settings import GateSettings

__all__ = ["Baseline", "GateSettings", "Gated", "gate", "read_baseline"]
