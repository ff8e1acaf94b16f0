"""Writes python/falkon/_async_client.pyi from the methods of the synchronous client:

    python python/tests/stubs.py > python/falkon/_async_client.pyi

A test (test_documents.py) fails when it is not up to date.
"""

import ast
import os

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "falkon")
HEAD = """# For type checkers: python/tests/stubs.py writes this file from _client.py.
from typing import Any, AsyncIterator, Dict, Iterable, List, Mapping, Optional, Sequence, TypeVar, Union

from ._requests import Path, Request, Result, Text

T = TypeVar("T")
"""
CLASSES = ("Client", "Instance", "Data", "Provision")


class Renamed(ast.NodeTransformer):
    """Annotations of the asynchronous client."""

    def visit_Constant(self, node):
        return ast.Name("Async" + node.value) if node.value in CLASSES else node

    def visit_Name(self, node):
        names = dict({name: "Async" + name for name in CLASSES}, Iterator="AsyncIterator")
        return ast.Name(names.get(node.id, node.id))


def parsed(name):
    with open(os.path.join(FOLDER, name)) as file:
        return {one.name: one for one in ast.parse(file.read()).body if isinstance(one, ast.ClassDef)}


def attributes(function):
    """The attributes that an initializer assigns, with their types."""
    kinds = {one.arg: one.annotation for one in function.args.args}
    for line in function.body:
        if not isinstance(line, ast.Assign):
            continue
        target, value = line.targets[0].attr, line.value
        if not target.startswith("_"):
            kind = kinds[value.id] if isinstance(value, ast.Name) else value.func
            yield "    %s: %s" % (target, ast.unparse(Renamed().visit(kind)))


def signature(function, is_async):
    arguments = Renamed().visit(function.args)
    gives = ast.unparse(Renamed().visit(function.returns)) if function.returns else "None"
    prefix = "async def" if is_async and not gives.startswith("AsyncIterator") else "def"
    return "    %s %s(%s) -> %s: ..." % (prefix, function.name, ast.unparse(arguments), gives)


def stub():
    described, own = parsed("_client.py"), parsed("_async_client.py")
    lines = [HEAD]
    for name in CLASSES:
        lines.append("class Async%s:" % name)
        plain = {one.name for one in own["Async" + name].body if isinstance(one, ast.FunctionDef)}
        for function in described[name].body:
            if not isinstance(function, ast.FunctionDef):
                continue
            if function.name == "__init__":
                lines += attributes(function)
                lines.append(signature(function, False))
            elif not function.name.startswith("_"):
                lines.append(signature(function, function.name not in plain))
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(stub(), end="")
