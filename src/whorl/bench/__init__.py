"""Speed: attacks and the estimator beside other libraries' in the same run."""
