# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Code that workers run around the functions of users. It is sent by value, so that executors need
not have this package."""


def call_chunk(function, chunk):
    """Calls a function for each tuple of arguments. Returns what it returned,
    and what the last call raised, if it did."""
    values = []
    for arguments in chunk:
        try:
            values.append(function(*arguments))
        except Exception as exception:
            return values, exception
    return values, None


def apply(function, *args, **kwargs):
    """Calls a function that is too large to travel as code."""
    return function(*args, **kwargs)


class Built:
    """A class whose objects are called, which are made where that is done: what
    they are made of may be large."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)()


class Batch(Built):
    """Joblib's class of batches. Calls in them may name the backend, if the package of
    ``module`` is here."""

    def __init__(self, function, module):
        super().__init__(function)
        self.module = module

    def __call__(self, *args):
        from joblib.parallel import BACKENDS, register_parallel_backend

        def backend(**options):
            import importlib

            return importlib.import_module(self.module).FalkonBackend(**options)

        if "falkon" not in BACKENDS:
            register_parallel_backend("falkon", backend)
        return super().__call__(*args)


class Initialised:
    """A function that is called after an initializer, which runs once in each
    worker. Workers that run another are others (``FALKON_WORKER_INITIALIZER``). An
    initializer that is too large to travel with the function is the first argument."""

    def __init__(self, function, initializer, key):
        self.function = function
        self.initializer = initializer
        self.key = key

    def __call__(self, *args, **kwargs):
        import sys

        initializer = self.initializer
        if initializer is None:
            initializer, *args = args
        done = sys.__dict__.setdefault("_falkon_initialised", set())
        if self.key not in done:
            import pickle
            import traceback

            try:
                called, arguments = pickle.loads(initializer)
                called(*arguments)
            except BaseException:
                taken = sys.modules["falkon_taken"]
                raise taken.InitializerFailed(traceback.format_exc()) from None
            done.add(self.key)
            sys.modules["falkon_taken"].settle()
        return self.function(*args, **kwargs)


class Large:
    """A function whose value is left in a file."""

    def __init__(self, function):
        self.function = function

    def __call__(self, place, *args, **kwargs):
        import sys

        value = self.function(*args, **kwargs)
        sys.modules["falkon_taken"].keep(value, place)


STREAMS = ("stdin", "stdout", "stderr")
"""The streams of a command that a call may name files for."""


class Shell:
    """A function that returns a command, which is run."""

    def __init__(self, function):
        self.function = function

    def __call__(self, files, *args, **kwargs):
        import os
        import subprocess

        command = self.function(*args, **kwargs)
        if isinstance(command, (str, bytes)):
            argv = ["/bin/sh", "-c", command]
        elif isinstance(command, (list, tuple)):
            is_path = [hasattr(part, "__fspath__") for part in command]
            argv = [os.fspath(part) if path else str(part) for part, path in zip(command, is_path)]
            command = argv
        else:
            raise TypeError(
                "a shell app returns a command, a text or a list, not %s" % type(command).__name__
            )
        opened = {}
        try:
            for name, file in files.items():
                if file is None:
                    continue
                file, mode = file if isinstance(file, tuple) else (file, "w")
                if mode not in ("w", "a"):
                    raise ValueError("%s is made anew (w) or appended to (a), not %r" % (name, mode))
                opened[name] = open(file, "rb" if name == "stdin" else mode + "b")
            opened.setdefault("stdin", subprocess.DEVNULL)
            done = subprocess.run(argv, **opened)  # type: ignore[arg-type]
        finally:
            for stream in opened.values():
                if hasattr(stream, "close"):
                    stream.close()
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command)
        return 0
