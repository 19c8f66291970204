"""Any JSON at all in place of a request: an answer of the contract, and never a failure of the server."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.protocol.chat import ChatBody
from app.protocol.completions import CompletionBody
from app.protocol.messages import Message, TextPart
from app.protocol.structured import JsonSchemaFormat, NamedSchema, StructuredOptions

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3)
)


def bodies_like(*models: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the fields of these models, and any values."""
    names = sorted({field.alias or name for model in models for name, field in model.model_fields.items()})
    return st.dictionaries(st.sampled_from(names) | st.text(), VALUES, max_size=5)


FORMATS = st.builds(
    lambda inner, outer: {"type": "json_schema", "json_schema": {"name": "a", "schema": {}} | inner} | outer,
    bodies_like(NamedSchema),
    bodies_like(JsonSchemaFormat) | st.just({}),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies_like(CompletionBody), VALUES | FORMATS, VALUES | bodies_like(StructuredOptions))
def test_any_json(post: Any, fields: dict[str, Any], response_format: object, options: object) -> None:
    """The answer is a completion, or an error with a code and a message."""
    response = post(**({"response_format": response_format, "structured_options": options} | fields))
    body = response.json()
    assert response.status_code in (200, 400, 404)
    assert response.status_code == 200 or (body["error"]["code"] and body["error"]["message"])


MESSAGES = st.lists(
    st.builds(
        lambda message, parts: {"role": "user", "content": parts} | message,
        bodies_like(Message),
        VALUES | st.lists(bodies_like(TextPart) | st.just({"type": "text", "text": "a"})),
    )
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies_like(ChatBody), VALUES | MESSAGES)
def test_any_json_in_a_chat(client: TestClient, fields: dict[str, Any], messages: object) -> None:
    """The same for chats, streamed or not."""
    response = client.post("/v1/chat/completions", json={"model": "tiny", "messages": messages} | fields)
    assert response.status_code in (200, 400, 404)
    if response.status_code != 200:
        assert all(response.json()["error"][key] for key in ("code", "message"))
    elif fields.get("stream"):
        assert response.text.endswith("data: [DONE]\n\n")
