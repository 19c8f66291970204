"""Requests that run as they stand, by route; a test sends each.

In: the names of the models that are loaded. Out: bodies, by method and path, each with a name.
"""

from __future__ import annotations

from typing import Any

Examples = dict[str, dict[str, Any]]

RECORD = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9999},
        "level": {"enum": ["初級", "中級", "上級"]},
        "draft": {"type": "boolean"},
    },
    "required": ["id", "level", "draft"],
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD}}


def examples(model_name: str) -> dict[str, Examples]:
    """For each path that takes a body."""
    completion: dict[str, Any] = {"model": model_name, "prompt": "", "max_tokens": 100}
    messages = [{"role": "user", "content": "a record, please"}]
    return {
        "/v1/completions": {
            "a document": completion | {"response_format": FORMAT},
            "free text": {"model": model_name, "prompt": "abc", "max_tokens": 8, "temperature": 0, "logprobs": 2},
            "a pattern": completion | {"response_format": {"type": "regex", "regex": "[a-z]{3}-[0-9]{4}"}},
            "a choice": completion | {"response_format": {"type": "choice", "choice": ["a", "b"]}, "n": 2},
            "a stream": completion | {"response_format": FORMAT, "stream": True},
        },
        "/v1/chat/completions": {
            "a document": {
                "model": model_name,
                "messages": messages,
                "max_completion_tokens": 100,
                "response_format": FORMAT,
                "structured_options": {"schema_in_prompt": False},
            },
            "a stream": {"model": model_name, "messages": messages, "max_completion_tokens": 4, "stream": True},
        },
        "/v1/schemas/validate": {
            "a schema": {"schema": RECORD},
            "one that cannot be enforced": {"schema": {"$dynamicRef": "#node"}},
        },
        "/v1/schemas": {"a schema": {"schema": RECORD, "wait": True}},
        "/tokenize": {"a prompt": {"prompt": "abc"}, "a chat": {"messages": messages}},
        "/detokenize": {"tokens": {"tokens": [5, 6, 7]}},
    }
