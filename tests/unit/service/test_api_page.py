"""The page of all calls, made from the OpenAPI description."""

import re

from flashruntime.service.api_page import page
from flashruntime.service.app import create_app


def test_every_call_and_every_schema_is_there_and_every_link_leads_somewhere() -> None:
    """Nothing is left out of the description, and no link is dead."""
    description = create_app().openapi()
    text = page(description)
    for path in description["paths"]:
        assert f"<code>{path}</code>" in text
    anchors = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors
    assert {f"schema-{name}" for name in description["components"]["schemas"]} <= anchors


def test_what_a_description_says_is_text_and_never_markup() -> None:
    """A description that holds markup is shown, not obeyed."""
    evil = "<script>alert(1)</script>"
    schema = {"type": evil, "description": evil, "default": evil, "enum": [evil]}
    call = {
        "tags": [evil],
        "operationId": evil,
        "summary": evil,
        "parameters": [{"name": evil, "in": "query", "description": evil, "schema": schema}],
        "requestBody": {"content": {"text/plain": {"schema": {"$ref": f"#/x/{evil}"}}}},
        "responses": {"200": {"description": evil}},
    }
    text = page(
        {
            "info": {"title": evil, "version": "1"},
            "paths": {evil: {"get": call}},
            "components": {"schemas": {evil: {"properties": {evil: schema}}}},
        }
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 8
