"""An experiment over several bounds: its data frame, a figure, and tables for a paper.

    python examples/sweep_to_tables.py mine.toml runs/by-eps 4/255,8/255,16/255

The data frame needs pandas: pip install 'torchwhorl[pandas]'
"""

import sys

from whorl import report, runs

file, out, bounds = sys.argv[1:4]
declared = runs.read_declaration(file, sweeps=[f"attacks.*.eps={bounds}"])
done = runs.run(declared, out)
files = report.write_tables(done, intervals=True)

frame = done.to_pandas()
summed = frame.groupby(["eps", "attack", "target", "defense"])[["n_success", "n_clean_correct"]].sum()
print((summed.n_success / summed.n_clean_correct).unstack(["target", "defense"]).round(3))
done.plot().write_html(f"{out}/overview.html")
print("for a paper:", files["LaTeX"])
