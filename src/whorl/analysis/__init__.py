"""Why the estimator works, how far, and with which kernel: the paper's §4 measured, and calibration.

whorl.analysis.error          g₁ and g₂ of §4, both corollaries, and what each approximation costs
whorl.analysis.calibration    kernels chosen by success on other networks, cross-validated
whorl.analysis.correlation    whether affine invariance and transfer go together
"""
