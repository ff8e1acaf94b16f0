"""Has Cubed's own tests of executors run with Falkon (suites.sh): a pytest plug-in."""

from cubed.tests import utils
from falkon.cubed import FalkonExecutor

utils.ALL_EXECUTORS[:] = utils.MAIN_EXECUTORS[:] = [FalkonExecutor(max_workers=2)]
