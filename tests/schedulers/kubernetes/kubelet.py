#!/usr/bin/env python3
"""Plays the kubelets of some nodes of a Kubernetes, for tests.

    kubelet.py DIR SERVER NODES CPUS

Its nodes are n1, n2, ..., each with CPUS CPUs and as many GiB. It runs what is
bound to them: the command of a pod's first container, as a process of this
machine with a host name, and the pod's Secrets, of its own. There is one image,
`host`, which is this machine; others cannot be pulled. DIR/token is how it
authenticates. A line `down n1` on its standard input has a node fail, `up n1`
come back; each is answered with `done`. Needs root.
"""

import base64
import json
import os
import pathlib
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

BEAT_S = 2
RETRY_S = 0.5
MESSAGE_BYTES_MAX = 2048
DIR = pathlib.Path(sys.argv[1])
SERVER = sys.argv[2]
NODES = {f"n{number + 1}" for number in range(int(sys.argv[3]))}
CPUS = int(sys.argv[4])
TOKEN = (DIR / "token").read_text().strip()
# The API server's certificate is one that it made for itself.
TLS = ssl._create_unverified_context()

down = set()
# Processes by the UID of their pod; pods that are, or were, dealt with.
processes = {}
begun = set()
ended = set()


def log(*words):
    print(*words, file=sys.stderr, flush=True)


def ask(method, path, body=None, kind="application/merge-patch+json", timeout=30):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    request = urllib.request.Request(SERVER + path, method=method, data=data, headers=headers)
    return urllib.request.urlopen(request, context=TLS, timeout=timeout)


def timestamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def path_of(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def tell(pod, status):
    if pod["spec"]["nodeName"] in down:
        return
    try:
        ask("PATCH", path_of(pod) + "/status", {"status": status}).close()
    except OSError as error:
        log("status of", pod["metadata"]["name"], error)


def container_status(pod, state, ready=False):
    container = pod["spec"]["containers"][0]
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
    ]


def waits(pod, reason, message=None):
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    tell(pod, {"phase": "Pending", "startTime": timestamp(), "containerStatuses": container_status(pod, state)})


def quantity(text, divisor):
    """A quantity of Kubernetes in units of `divisor`, rounded up."""
    units = {"m": 1, "": 1000, "Ki": 1000 << 10, "Mi": 1000 << 20, "Gi": 1000 << 30}

    def milli(text):
        number = text.rstrip("mKMGi")
        return int(number) * units[text[len(number) :]]

    return -(-milli(text) // milli(divisor))


def environment(pod):
    variables = dict(os.environ, POD=pod["metadata"]["name"])
    container = pod["spec"]["containers"][0]
    for one in container.get("env", []):
        variables[one["name"]] = one.get("value", "")
        wanted = one.get("valueFrom", {}).get("resourceFieldRef")
        if wanted:
            which, name = wanted["resource"].split(".", 1)
            has = container.get("resources", {}).get(which, {}).get(name, "0")
            variables[one["name"]] = str(quantity(has, wanted.get("divisor", "1")))
    return variables


def mounts(pod):
    """Shell that puts the pod's Secrets where it wants them. Waits for them."""
    wanted = {one["name"]: one["mountPath"] for one in pod["spec"]["containers"][0].get("volumeMounts", [])}
    lines = []
    for volume in pod["spec"].get("volumes", []):
        if "secret" not in volume or volume["name"] not in wanted:
            continue
        name = volume["secret"]["secretName"]
        while True:
            try:
                with ask("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{name}") as answer:
                    secret = json.load(answer)
                break
            except urllib.error.HTTPError:
                waits(pod, "ContainerCreating")
                time.sleep(RETRY_S)
        here = DIR / "pods" / pod["metadata"]["uid"] / volume["name"]
        here.mkdir(parents=True)
        here.chmod(0o700)
        for key, value in secret["data"].items():
            (here / key).write_bytes(base64.b64decode(value))
        at = pathlib.PurePath(wanted[volume["name"]])
        source, target, parent = (shlex.quote(str(path)) for path in (here, at, at.parent))
        lines.append(f"mount -t tmpfs none {parent} && mkdir -p {target} && mount --bind {source} {target} || exit 1")
    return "\n".join(lines)


def run(pod):
    container = pod["spec"]["containers"][0]
    image = container["image"]
    if image != "host":
        why = f'failed to pull and unpack image "{image}": not found'
        waits(pod, "ErrImagePull", why)
        time.sleep(RETRY_S)
        waits(pod, "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}')
        return
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    waits(pod, "ContainerCreating")
    # With a name and mounts of its own.
    script = f'hostname "$POD"\n{mounts(pod)}\nexec "$@"'
    words = ["unshare", "--mount", "--uts", "sh", "-c", script, "pod", *container["command"]]
    path = DIR / "pods" / f"{name}.log"
    with open(path, "wb") as output:
        process = subprocess.Popen(
            words, env=environment(pod), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    processes[uid] = process
    began = timestamp()
    running = container_status(pod, {"running": {"startedAt": began}}, True)
    ready = [{"type": "Ready", "status": "True"}]
    tell(pod, {"phase": "Running", "startTime": began, "conditions": ready, "containerStatuses": running})
    status = {}
    try:
        process.wait(pod["spec"].get("activeDeadlineSeconds"))
    except subprocess.TimeoutExpired:
        kill(process, 2)
        message = "Pod was active on the node longer than the specified deadline"
        status = {"reason": "DeadlineExceeded", "message": message}
    code = process.wait()
    code = code if code >= 0 else 128 - code
    over = {
        "exitCode": code,
        "startedAt": began,
        "finishedAt": timestamp(),
        "reason": "Error" if code else "Completed",
    }
    if code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        over["message"] = path.read_bytes()[-MESSAGE_BYTES_MAX:].decode(errors="replace")
    status["phase"] = "Failed" if code or status else "Succeeded"
    status["conditions"] = [{"type": "Ready", "status": "False"}]
    status["containerStatuses"] = container_status(pod, {"terminated": over})
    tell(pod, status)


def kill(process, grace):
    for number in signal.SIGTERM, signal.SIGKILL:
        try:
            os.killpg(process.pid, number)
            process.wait(grace)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def remove(pod):
    process = processes.get(pod["metadata"]["uid"])
    if process:
        kill(process, pod["metadata"].get("deletionGracePeriodSeconds", 30))
    elif pod["status"].get("phase") == "Pending":
        tell(pod, {"phase": "Failed"})
    # Its last status is told by who runs it.
    time.sleep(RETRY_S)
    try:
        ask("DELETE", path_of(pod), {"gracePeriodSeconds": 0}, "application/json").close()
    except OSError as error:
        log("removal of", pod["metadata"]["name"], error)


def look_at(pod):
    uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
    if node not in NODES or node in down:
        return
    if pod["metadata"].get("deletionTimestamp"):
        if uid not in ended:
            ended.add(uid)
            threading.Thread(target=remove, args=(pod,), daemon=True).start()
    elif uid not in begun and pod["status"].get("phase") == "Pending":
        begun.add(uid)
        threading.Thread(target=run, args=(pod,), daemon=True).start()


def beat():
    size = {"cpu": str(CPUS), "memory": f"{CPUS}Gi", "pods": "100"}
    while True:
        for node in sorted(NODES - down):
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": timestamp()}
            status = {"capacity": size, "allocatable": size, "conditions": [ready]}
            try:
                ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}).close()
            except OSError as error:
                log("heartbeat of", node, error)
        time.sleep(BEAT_S)


def listen():
    for line in sys.stdin:
        word, node = line.split()
        with ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}") as answer:
            pods = json.load(answer)["items"]
        if word == "down":
            down.add(node)
        else:
            down.discard(node)
        for pod in pods:
            process = processes.get(pod["metadata"]["uid"])
            if word == "down":
                if process:
                    kill(process, 0)
                continue
            # A node that comes back says what has become of its pods.
            if process and pod["status"].get("phase") == "Running":
                tell(pod, {"phase": "Failed", "reason": "NodeShutdown"})
            look_at(pod)
        print("done", flush=True)
    os._exit(0)


def main():
    threading.Thread(target=beat, daemon=True).start()
    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            with ask("GET", "/api/v1/pods") as answer:
                known = json.load(answer)
            for pod in known["items"]:
                look_at(pod)
            version = known["metadata"]["resourceVersion"]
            with ask("GET", f"/api/v1/pods?watch=1&resourceVersion={version}", timeout=3600) as events:
                for line in events:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        look_at(event["object"])
        except OSError as error:
            log("watch:", error)
            time.sleep(RETRY_S)


if __name__ == "__main__":
    main()
