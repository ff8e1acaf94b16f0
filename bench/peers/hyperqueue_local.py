"""Runs /bin/true TASKS times with SLOTS cpus in HyperQueue's LocalCluster."""

import sys

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

tasks, slots = int(sys.argv[1]), int(sys.argv[2])
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=slots))
    client = cluster.client()
    job = Job()
    for _ in range(tasks):
        # Streams are off: it would otherwise make two files per task.
        job.program(["/bin/true"], stdout=None, stderr=None)
    client.wait_for_jobs([client.submit(job)])
