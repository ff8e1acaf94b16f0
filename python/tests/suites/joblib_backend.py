"""Has joblib's own tests run with Falkon among the backends (suites.sh): a
pytest plug-in."""

import falkon.joblib

falkon.joblib.register()
from joblib.test import test_parallel  # noqa: E402

test_parallel.ALL_VALID_BACKENDS[:] = ["falkon"]
