"""Why the estimator works, how far, and with which kernel: the paper's §4 measured, and calibration.

    whorl.analysis.error          g₁ and g₂ of §4, both corollaries, and what each approximation costs
    whorl.analysis.polar_grids    the estimator on finer polar grids, and on a logarithmic one
    whorl.analysis.calibration    kernels chosen by success on other networks, cross-validated

Nothing is imported here, since declarations name the estimators of ``polar_grids`` and the rest needs declarations.
"""
