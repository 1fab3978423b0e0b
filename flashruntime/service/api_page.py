"""The OpenAPI description as one page: every call, what it takes and what it answers.

It loads a style sheet of the coordinator and nothing else, so it works without a network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Json = Mapping[str, Any]
PARAMETERS = ("name", "in", "type", "meaning")
FIELDS = ("field", "type", "meaning")


def page(description: Json) -> str:
    """Return the page of an OpenAPI description."""
    info = description["info"]
    title = f"{info['title']} {info['version']}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _INTRODUCTION,
        *_calls(description),
        *_schemas(description),
    ]
    return _FRAME.format(title=escape(title), body="\n".join(body))


def _calls(description: Json) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, calls in description["paths"].items():
        for method, call in calls.items():
            group = (call.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_call(method.upper(), path, call))
    for group, found in groups.items():
        yield f'<section class="card"><h2>{escape(group)}</h2>{"".join(found)}</section>'


def _call(method: str, path: str, call: Json) -> str:
    parameters = [
        (p["name"] + ("" if p.get("required") else " (optional)"), p["in"], *_told(p))
        for p in call.get("parameters", ())
    ]
    takes = _contents("Takes", call.get("requestBody", {}))
    answers = "".join(
        _contents(f"Answers {status}", answer, answer.get("description", ""))
        for status, answer in call["responses"].items()
    )
    is_open = "" if call.get("security") != [] else ' <span class="pill">needs no token</span>'
    return (
        f'<details id="{escape(call["operationId"])}"><summary><b class="mono">{method}</b> '
        f"<code>{escape(path)}</code>{is_open}</summary>"
        f"<p>{escape(call.get('description') or call['summary'])}</p>"
        f"{_table(PARAMETERS, parameters)}{takes}{answers}</details>"
    )


def _contents(title: str, body: Json, more: str = "") -> str:
    kinds = [
        f"<code>{escape(kind)}</code> {_type(content.get('schema', {}))}"
        for kind, content in body.get("content", {}).items()
    ]
    if not kinds and not more:
        return ""
    return f"<p><b>{escape(title)}</b> {escape(more)} {', '.join(kinds)}</p>"


def _schemas(description: Json) -> Iterator[str]:
    yield '<section class="card"><h2>Schemas</h2>'
    for name, schema in sorted(description.get("components", {}).get("schemas", {}).items()):
        required = schema.get("required", ())
        rows = [
            (key + ("" if key in required else " (optional)"), *_told({"schema": one, **one}))
            for key, one in schema.get("properties", {}).items()
        ]
        about = escape(schema.get("description", "")) or _type(schema)
        yield (
            f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
            f"<p>{about}</p>{_table(FIELDS, rows)}</details>"
        )
    yield "</section>"


def _told(holder: Json) -> tuple[str, str]:
    schema = holder.get("schema", {})
    limits = {key: schema[key] for key in _LIMITS if key in schema}
    words = [
        holder.get("description", ""),
        *(f"{key}: {json.dumps(v)}" for key, v in limits.items()),
    ]
    return _type(schema), escape("; ".join(word for word in words if word))


def _type(schema: Json) -> str:
    """Return what a schema allows as HTML: links to named schemas, else words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_type(one) for one in schema[key])
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if values:
        return ", ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    more = schema.get("additionalProperties")
    if isinstance(more, dict) and more:
        return f"map of {_type(more)}"
    return escape(schema.get("type", "anything"))


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table; the first cell of a row is plain text, the others are HTML."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    lines = (
        f'<tr><th scope="row"><code>{escape(first)}</code></th>'
        + "".join(f"<td>{cell}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


_LIMITS = ("default", "minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "pattern")
_INTRODUCTION = (
    '<p>The same for programs: <a href="openapi.json">openapi.json</a>. '
    '<a href="./">Jobs, tasks and nodes as they are now</a>.</p>'
)
_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="page/style.css">
<link rel="stylesheet" href="page/docs.css">
</head>
<body>
<main class="api">
{body}
</main>
</body>
</html>
"""
