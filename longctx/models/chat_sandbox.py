"""The Jinja environment chat templates run in: what they need, and bounds on what they may do.

A template comes with a model from wherever the model came from, so it is untrusted code. It gets
no attributes that lead out of the sandbox, a budget of steps and seconds, a bound on every text it
builds, and only the filters and string methods chat templates use.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 100_000
MAX_SECONDS = 10.0
_MAX_INTEGER_BITS = 4_096
# None of these returns more than it was given.
_FILTERS = (
    "abs capitalize count d default dictsort e escape first float int items last length list "
    "lower map max min reject rejectattr reverse round safe select selectattr sort title trim "
    "unique upper"
)
_STRING_METHODS = (
    "capitalize count endswith find index isalnum isalpha isdigit islower isspace isupper join "
    "lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit "
    "rstrip split splitlines startswith strip title upper"
)


class LimitError(jinja2.TemplateError):
    """The template ran over its budget."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks training text; here it prints its body."""

    tags = {"generation"}  # noqa: RUF012  (the base class declares it a plain set)

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatSandbox(ImmutableSandboxedEnvironment):
    """One per rendering: it counts the steps of that rendering.

    `max_characters` bounds every text or list the template builds, and the output.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, max_characters: int):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=self._measured,
        )
        self._max_characters = max_characters
        self._steps, self._end = 0, time.monotonic() + MAX_SECONDS
        # Names a template cannot guess, so that it cannot redefine them.
        self._step_name, self._concat_name = (f"hidden_{secrets.token_hex(8)}" for _ in "ab")
        self.filters = {name: self.filters[name] for name in _FILTERS.split()} | {
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
            "string": self._string,
            "tojson": self._to_json,
        }
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: datetime.now().strftime(form),
            self._step_name: self._step,
            self._concat_name: lambda *parts: self._join(parts),
        }

    def output(self, source: str, variables: Mapping[str, Any]) -> str:
        """Compile and render, stopping as soon as the output is too long."""
        pieces, size = [], 0
        for piece in self.from_string(source).generate(**variables):
            size += len(piece)
            self._check(size)
            pieces.append(piece)
        return "".join(pieces)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Make every loop and macro count its steps, and every `a ~ b` a call that is checked."""
        tree = super()._parse(source, name, filename)
        for block in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            block.body.insert(0, nodes.ExprStmt(_call(self._step_name, [], block.lineno)))
        _replace_concatenations(tree, self._concat_name)
        tree.set_environment(self)
        return tree

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS or time.monotonic() > self._end:
            raise LimitError("it runs for too long")

    def _check(self, size: int) -> None:
        if size > self._max_characters:
            raise LimitError(f"it builds a text of over {self._max_characters} characters")

    def _measured(self, value: Any) -> Any:
        """`value`, whose text form is known to be within bounds (a list can hold itself twice)."""
        size, waiting = 0, [value]
        while waiting:
            item = waiting.pop()
            size += len(item) if isinstance(item, str) else 1
            self._check(size)
            if isinstance(item, Mapping):
                waiting += item.keys()
                waiting += item.values()
            elif isinstance(item, list | tuple | set):
                waiting += item
        return value

    def _string(self, value: Any) -> str:
        return value if isinstance(value, str) else str(self._measured(value))

    def _join(self, parts: Iterable[Any], separator: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            parts = [self.getitem(part, attribute) for part in parts]
        size, texts = 0, []
        for part in parts:
            texts.append(self._string(part))
            size += len(texts[-1]) + len(separator)
            self._check(size)
        return separator.join(texts)

    def _replace(self, text: Any, old: Any, new: Any, count: Any = None) -> str:
        text, old, new = self._string(text), self._string(old), self._string(new)
        self._check(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else int(count))

    def _indent(
        self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        text = self._string(text)
        if isinstance(width, int):
            self._check(width)
        margin = width if isinstance(width, str) else " " * width
        lines = text.split("\n")
        self._check(len(text) + len(margin) * len(lines))
        start = margin if first else ""
        rest = (margin + line if line or blank else line for line in lines[1:])
        return start + "\n".join([lines[0], *rest])

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as chat templates expect it: not escaped for HTML."""
        self._measured(value)
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=None if indent is None else min(int(indent), 8),
            separators=separators,
            sort_keys=sort_keys,
        )

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would build a huge value, before it is built."""
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise LimitError(f"it uses the operator {operator}")
        if isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > _MAX_INTEGER_BITS:
                raise LimitError("it computes a huge number")
        elif operator == "+":
            self._check(_size(left) + _size(right))
        elif operator == "*":
            for some, times in ((left, right), (right, left)):
                if isinstance(times, int):
                    self._check(_size(some) * times)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls of `str.replace` and `str.join` are checked for the size of their result."""
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            return self._replace(owner, *args)
        if isinstance(owner, str) and name == "join" and args:
            return self._join(args[0], owner)
        return super().call(context, obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of strings only the listed methods: others pad to any width or format."""
        if isinstance(obj, str):
            return attr in _STRING_METHODS.split()
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No exception for `str.format`."""
        return


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _replace_concatenations(tree: nodes.Node, name: str) -> None:
    def fixed(value: Any) -> Any:
        if isinstance(value, nodes.Concat):
            return _call(name, value.nodes, value.lineno)
        return value

    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for field, value in list(node.iter_fields()):
            new = [fixed(item) for item in value] if isinstance(value, list) else fixed(value)
            setattr(node, field, new)
        waiting += node.iter_child_nodes()


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), arguments, [], None, None, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
