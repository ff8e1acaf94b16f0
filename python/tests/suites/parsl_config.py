"""The configuration with which Parsl's own tests run on Falkon (suites.sh)."""

import os

from falkon.parsl import FalkonExecutor
from parsl.config import Config
from parsl.data_provider.file_noop import NoOpFileStaging
from parsl.data_provider.ftp import FTPInTaskStaging
from parsl.data_provider.http import HTTPInTaskStaging
from parsl.data_provider.zip import ZipFileStaging


def fresh_config():
    return Config(
        executors=[
            FalkonExecutor(
                max_workers=2,
                working_dir=os.getcwd(),
                storage_access=[
                    FTPInTaskStaging(),
                    HTTPInTaskStaging(),
                    ZipFileStaging(),
                    NoOpFileStaging(),
                ],
            )
        ],
        strategy="none",
        usage_tracking=0,
    )


config = fresh_config()
