"""What PSI/J's own tests of executors take from their repository, which its package has
not: the executors and launchers that they are for (suites.sh)."""

import pytest
from executor_test_params import LAUNCHERS, ExecutorTestParams


@pytest.fixture(params=LAUNCHERS)
def execparams(request):
    return ExecutorTestParams(request.param)
