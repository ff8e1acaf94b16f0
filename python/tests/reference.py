"""Writes docs/python-reference.md from the package's docstrings:

    python python/tests/reference.py > docs/python-reference.md

A test (test_documents.py) fails when it is not up to date, and when something
public has no docstring.
"""

import inspect
import re
import textwrap

import falkon

HEAD = """# Python reference

What `import falkon` has, from its docstrings (`python/tests/reference.py` writes
this page). Other projects' interfaces are in
[python-integrations.md](python-integrations.md).
"""
BASES = (Exception, BaseException, object)


def plain(text):
    """A docstring's roles and double backticks, as Markdown has them."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    lines, example = [], False
    for line in text.split("\n"):
        if line.startswith(">>> ") and not example:
            lines.append("```pycon")
            example = True
        elif example and not line.strip():
            lines.append("```")
            example = False
        lines.append(line.replace("  # doctest: +SKIP", ""))
    if example:
        lines.append("```")
    return "\n".join(lines)


def document_of(thing):
    text = inspect.getdoc(thing)
    return plain(text) if text else None


class Name:
    """Shown as a name, where an object would show its address."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def shown(default):
    return Name(default.__name__) if inspect.isfunction(default) else default


def signature_of(name, thing):
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    own = [
        parameter.replace(annotation=inspect.Parameter.empty, default=shown(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name != "self" and not parameter.name.startswith("_")
    ]
    return "%s%s" % (name, inspect.Signature(own))


def members_of(thing):
    """Public methods and properties that a class has of its own."""
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        if inspect.isfunction(member) or isinstance(member, property):
            yield name, member


def entries():
    """Each public thing: its heading's depth, heading, and text (``None``: there is none)."""
    for name in sorted(falkon.__all__, key=str.lower):
        thing = getattr(falkon, name)
        if inspect.isclass(thing):
            error = issubclass(thing, BaseException)
            heading = name if error else signature_of(name, thing)
            yield 2, heading, vars(thing).get("__doc__") and document_of(thing)
            for member_name, member in members_of(thing):
                if isinstance(member, property):
                    yield 3, "%s.%s" % (name, member_name), document_of(member)
                else:
                    label = signature_of("%s.%s" % (name, member_name), member)
                    yield 3, label, inherited(thing, member_name, member)
        else:
            yield 2, signature_of(name, thing), document_of(thing)


def inherited(thing, name, member):
    """A method's own text, or that it does what the standard class says."""
    text = member.__doc__ and document_of(member)
    if not text and any(name in vars(base) for base in thing.__mro__[1:]):
        text = "As in `concurrent.futures`."
    return text


def page():
    parts = [HEAD]
    for depth, heading, text in entries():
        parts.append("%s `%s`\n" % ("#" * depth, heading))
        parts.append(textwrap.dedent(text or "").rstrip() + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
