"""What runs in workers around the functions of users. It is sent by value, so
that executors need not have this package."""


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


class Initialised:
    """A function that is called after an initializer, which runs once in each
    worker."""

    def __init__(self, function, initializer, arguments, key):
        self.function = function
        self.initializer = initializer
        self.arguments = arguments
        self.key = key

    def __call__(self, *args, **kwargs):
        import sys
        import traceback

        done = sys.__dict__.setdefault("_falkon_initialised", {})
        if self.key not in done:
            try:
                self.initializer(*self.arguments)
                done[self.key] = None
            except BaseException:
                done[self.key] = traceback.format_exc()
        if done[self.key] is not None:
            raise RuntimeError("falkon initializer\n" + done[self.key])
        return self.function(*args, **kwargs)
