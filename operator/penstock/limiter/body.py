r"""What a generation request wants, read from its body without touching it.

Theory of operation. The engine gets the client's bytes; this module only looks. One typed decoder names the fields
that matter for admission, skips the rest, and serves all paths: a field that a path does not know is as harmless here
as at the engine. The texts are then measured, never copied.

What is read here and what the engine reads must be the same, or a client could be charged for one request and served
another. Engines read with Python's json (vLLM) and nlohmann::json (llama.cpp):

| body | here | why |
|---|---|---|
| a key twice in an object | passed, the last one counts | so do both engines |
| a key or text written with escapes | passed, read as what it means | so do both engines |
| a lone surrogate (`\ud800`) | refused | one engine refuses it, the other fails on it later |
| bytes that are not UTF-8, UTF-16, a byte order mark | refused | one engine reads them, the other does not |
| NaN, Infinity | refused | one engine reads them, the other does not |
| nested deeper than `NESTING_LIMIT` | refused | both readers end somewhere, at depths of their own |
| a number as `100.0` | passed, read as 100 | so do both engines |
| a number or truth value as text, `stream: 1` | refused | one engine converts it, the other ignores it |
| null | passed, as if left out | so do both engines |
| more answers than `SEQUENCES_LIMIT` | refused | no engine serves them, and everybody else would wait |

Fields whose type no decision depends on (the shape of a message, say) are left for the engine to judge.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import msgspec

from penstock.admission.cost import PromptSize
from penstock.limiter.flat import check_utf8, is_narrow, write_flat
from penstock.limiter.measure import measure
from penstock.limiter.refusal import Reason, Refused
from penstock.limiter.structure import Shape, slices
from penstock.limiter.wish import KINDS, NO_PROMPT, Kind, Wish

NESTING_LIMIT = 128
LARGE_BYTES = 1 << 20
"""Bodies above this are read with care for memory (`flat`)."""

SHORT_BYTES = 4096
"""What a field of a large body that holds no texts may take."""

STRUCTURE_LIMIT = 1_000_000
"""Values of one body: each takes some 40 bytes while it is looked at, however short it is written."""

LIST_WEIGHT, OBJECT_WEIGHT = 2, 5
"""How many other values take as much memory."""

SEQUENCES_LIMIT = 1024
TOKENS_LIMIT = 1 << 31
MODEL_NAME_LIMIT = 256
SHOWN_LIMIT = 100


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


_Number = int | float | None


class _Body(msgspec.Struct):
    """The fields that matter, of all paths."""

    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Number = None
    n_cmpl: _Number = None
    best_of: _Number = None
    max_tokens: _Number = None
    max_completion_tokens: _Number = None
    max_output_tokens: _Number = None
    n_predict: _Number = None
    # texts, in whatever shape
    messages: Any = None
    prompt: Any = None
    input: Any = None
    inputs: Any = None
    system: Any = None
    instructions: Any = None
    suffix: Any = None
    content: Any = None
    input_prefix: Any = None
    input_suffix: Any = None
    input_extra: Any = None
    query: Any = None
    queries: Any = None
    documents: Any = None
    items: Any = None
    texts: Any = None
    text_1: Any = None
    text_2: Any = None
    data: Any = None
    tokens: Any = None
    # enters the prompt as it is written
    tools: msgspec.Raw = msgspec.Raw(b"")
    functions: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(_Body)
_FIELDS = {field.name: field.type is Any for field in msgspec.structs.fields(_Body)}
"""Each field that matters, and whether it holds texts."""

_WITH_PROMPTS: Final = frozenset({Kind.COMPLETIONS, Kind.NATIVE})
_ANSWERS: Final = ("n", "n_cmpl", "best_of")
_BOUNDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
_AS_WRITTEN = frozenset({"functions", "tools"})
_UNREAD = msgspec.Raw(b"")
_OUTER = msgspec.json.Decoder(
    msgspec.defstruct("_Outer", [(name, msgspec.Raw, msgspec.field(default=_UNREAD)) for name in _FIELDS])
)

_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_COMPLAINT = re.compile(r"Expected `(.+?)`, got `(.+?)`")
_FIELD = re.compile(r"`\$\.?(.*?)`")
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a number",
    "int | float": "a number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}


def read_wish(path: str, body: bytes) -> Wish:
    """Read what a request wants.

    Args:
        path: Canonical path of a generation request.
        body: The whole body.

    Raises:
        Refused: the body is no JSON object that this limiter and the engine read in the same way, or a field has the
            wrong type.
    """
    kind = KINDS.get(path, Kind.ENCODE)
    if kind is Kind.AUDIO:
        return Wish(kind=kind, prompt=PromptSize(audios=1))
    flat = len(body) > LARGE_BYTES and not is_narrow(body)
    fields = _decode(body, flat=flat)
    prompts = _prompts(fields.prompt) if kind in _WITH_PROMPTS else 1
    if path.endswith("/batch") and isinstance(fields.messages, list):
        prompts = max(1, len(fields.messages))
    answers = max([1, *_numbers(fields, _ANSWERS)])
    if prompts * answers > SEQUENCES_LIMIT:
        _bad(f"The body asks for more than {SEQUENCES_LIMIT} answers at once.")
    model = fields.model
    if model is not None and len(model) > MODEL_NAME_LIMIT:
        _bad(f"`model` is longer than {MODEL_NAME_LIMIT} characters.")
    generates = kind.generates
    return Wish(
        kind=kind,
        model=model,
        stream=bool(fields.stream) and generates,
        include_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
        sequences=prompts * answers if generates else 1,
        max_output_tokens=_output_bound(fields) if generates else 0,
        prompt=NO_PROMPT if kind is Kind.COUNT else _prompt(fields, flat=flat),
    )


def _decode(body: bytes, *, flat: bool) -> _Body:
    _check_structure(body)
    try:
        if not body.isascii():
            check_utf8(body)  # fields that are skipped are not looked at
        return _DECODER.decode(_flattened(body) if flat else body)
    except UnicodeDecodeError:
        _bad("The body is not valid UTF-8.")
    except msgspec.ValidationError as error:
        _bad(_in_words(str(error)))
    except msgspec.DecodeError as error:
        if not body:
            _bad("The request needs a body: a JSON object.")
        if _LONE_SURROGATE.search(body):
            _bad("The body is no valid JSON, or a text in it has half of a surrogate pair.")
        _bad(f"The body is no valid JSON: {str(error).removeprefix('JSON is malformed: ')}.")
    except RecursionError:
        _bad("The body is nested too deeply.")


def _check_structure(body: bytes) -> None:
    """Refuse a body whose values could take much memory, or nest deeply; most need no close look."""
    lists, objects = body.count(b"["), body.count(b"{")
    rough = 0 if len(body) * OBJECT_WEIGHT <= STRUCTURE_LIMIT else _weight(body.count(b","), lists, objects)
    if rough <= STRUCTURE_LIMIT and lists + objects <= NESTING_LIMIT:
        return
    shape = Shape()
    for piece in slices(body):
        shape.see(piece)
        if _weight(shape.commas, shape.lists, shape.objects) > STRUCTURE_LIMIT:
            raise Refused(Reason.BODY_TOO_LARGE, f"The body holds more values than {STRUCTURE_LIMIT} numbers take.")
        if shape.depth > NESTING_LIMIT:
            _bad(f"The body is nested deeper than {NESTING_LIMIT} levels.")


def _weight(commas: int, lists: int, objects: int) -> int:
    return commas + LIST_WEIGHT * lists + OBJECT_WEIGHT * objects


def _flattened(body: bytes) -> bytearray:
    """Return the fields that matter as a body of their own, the texts written flat."""
    outer = _OUTER.decode(body)
    out = bytearray(b"{")
    for name, holds_texts in _FIELDS.items():
        value = getattr(outer, name)
        if value is _UNREAD:
            continue
        out += b'"%b":' % name.encode()
        written = memoryview(value)
        if holds_texts:
            write_flat(out, written)
        elif name in _AS_WRITTEN or written.nbytes <= SHORT_BYTES:
            out += written
        else:
            _bad(f"`{name}` is longer than {SHORT_BYTES} bytes.")
        out += b","
    out[-1:] = b"}" if len(out) > 1 else b"{}"
    return out


def _in_words(problem: str) -> str:
    """Return the decoder's complaint about a type as a sentence for the client."""
    complaint, field = _COMPLAINT.match(problem), _FIELD.search(problem)
    name = f"`{field[1][:SHOWN_LIMIT]}`" if field is not None and field[1] else "The body"
    if complaint is None:
        return f"{name} has a value that cannot be read: {problem.partition(' - at ')[0]}."
    expected, found = complaint[1].removesuffix(" | null"), complaint[2]
    return f"{name} must be {_TYPES.get(expected, expected)}, not {_TYPES.get(found, found)}."


def _numbers(fields: _Body, names: tuple[str, ...]) -> list[int]:
    """Return those of some fields that are there; they must be whole numbers."""
    found = []
    for name in names:
        value = getattr(fields, name)
        if value is None:
            continue
        if isinstance(value, float) and not value.is_integer():
            _bad(f"`{name}` must be a whole number.")
        found.append(int(min(value, TOKENS_LIMIT)))
    return found


def _output_bound(fields: _Body) -> int | None:
    """Return the most tokens one answer may have: the largest that is named, since engines differ in which counts."""
    bounds = _numbers(fields, _BOUNDS)
    # a negative number means no bound to llama.cpp
    return None if not bounds or min(bounds) < 0 else max(bounds)


def _prompts(prompt: object) -> int:
    """Return how many prompts there are: a list of texts or of token lists is several, a list of tokens is one."""
    if not isinstance(prompt, list) or not prompt or any(isinstance(one, int) for one in prompt):
        return 1
    return len(prompt)


def _prompt(fields: _Body, *, flat: bool) -> PromptSize:
    values = (
        fields.messages, fields.prompt, fields.input, fields.inputs, fields.system, fields.instructions, fields.suffix,
        fields.content, fields.input_prefix, fields.input_suffix, fields.input_extra, fields.query, fields.queries,
        fields.documents, fields.items, fields.texts, fields.text_1, fields.text_2, fields.data, fields.tokens,
    )  # fmt: skip
    return measure(
        filter(None, values),
        flat=flat,
        written=memoryview(fields.tools).nbytes + memoryview(fields.functions).nbytes,
        messages=len(fields.messages) if isinstance(fields.messages, list) else 0,
    )


def _bad(message: str) -> NoReturn:
    raise Refused(Reason.BAD_REQUEST, message)
