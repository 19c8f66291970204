"""What routes give, whole and in pieces, and errors: JSON Schemas by name.

In: nothing. Out: components of the document. Tests hold real answers against each of them.
"""

from __future__ import annotations

from app.openapi.shapes import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NULL,
    NUMBER,
    STRING,
    Shape,
    array,
    mapping,
    members,
    nullable,
    one_of,
    ref,
)

HASH: Shape = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TIER = one_of("memory", "disk", "miss")
FINISH_REASON = one_of("stop", "length", "content_filter", "tool_calls")
STOP_REASON = one_of(
    *("end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded", "tool_use", "refusal"),
    "max_attempts",
)
MASS = members(mean=NUMBER, min=NUMBER)
WORST = members(token_index=COUNT, pointer=STRING, wanted=STRING, got=STRING, allowed_mass=NUMBER)
RETRY = members(judged=COUNT, accepted=COUNT, acceptance_rate=NUMBER, tokens=COUNT, model_calls=COUNT)
FIELD = members(pointer=STRING, allowed_mass=MASS, intervened=COUNT, ended_by_limit=BOOLEAN)
DIAGNOSTICS = {
    "tokens": members(total=COUNT, forced=COUNT, intervened=COUNT),
    "allowed_mass": MASS,
    "worst": nullable(WORST),
    "fields": array(FIELD),
}
CHAT_TOKEN = {"token": STRING, "logprob": NUMBER, "bytes": nullable(array(COUNT))}
ENDING = {
    "stop_reason": STOP_REASON,
    "stop_sequence": nullable(STRING),
    "structured": nullable(ref("StructuredChoice")),
}
FRAME = {"id": STRING, "created": INTEGER, "model": STRING, "system_fingerprint": STRING}


def _chunk(kind: str, content: Shape) -> Shape:
    """A piece of a stream: an ending has more members than a piece of text."""
    choice = members(ENDING, **content, index=COUNT, finish_reason=nullable(FINISH_REASON))
    also = {"usage": nullable(ref("Usage")), "structured": nullable(ref("StructuredAnswer"))}
    return members(also, **FRAME, object={"const": kind}, choices=array(choice))


def _whole(kind: str, content: Shape) -> Shape:
    choice = members(**content, **ENDING, index=COUNT, finish_reason=FINISH_REASON)
    return members(
        **FRAME,
        object={"const": kind},
        choices=array(choice),
        usage=ref("Usage"),
        structured=nullable(ref("StructuredAnswer")),
    )


COMPLETION = {"text": STRING, "logprobs": nullable(ref("CompletionLogprobs"))}
MESSAGE = members(role={"const": "assistant"}, content=nullable(STRING), refusal=nullable(STRING))
CHAT = {"message": MESSAGE, "logprobs": nullable(ref("ChatLogprobs"))}
DELTA = members({"role": {"const": "assistant"}, "content": nullable(STRING), "refusal": nullable(STRING)})
CHAT_PIECE = {"delta": DELTA, "logprobs": nullable(ref("ChatLogprobs"))}

ANSWERS: dict[str, Shape] = {
    "Finding": members(pointer=STRING, keyword=STRING, reason=STRING, hint=STRING),
    "Warning": members(pointer=STRING, keyword=STRING, reason=STRING),
    "Usage": members(
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        prompt_tokens_details=members(cached_tokens=COUNT),
        completion_tokens_details=members(reasoning_tokens=COUNT),
    ),
    "StructuredAnswer": members(
        schema_hash=HASH, cache=TIER, compile_ms=NUMBER, minimum_tokens=COUNT, warnings=array(ref("Warning"))
    ),
    "StructuredChoice": members(
        DIAGNOSTICS | {"attempts": COUNT, "retry": RETRY},
        enforced=one_of("full", "partial"),
        complete=BOOLEAN,
        valid=nullable(BOOLEAN),
        closed_early=BOOLEAN,
    ),
    "CompletionLogprobs": members(
        tokens=array(STRING),
        token_logprobs=array(nullable(NUMBER)),
        top_logprobs=array(nullable(mapping(NUMBER))),
        text_offset=array(COUNT),
    ),
    "ChatLogprobs": members(
        content=array(members(**CHAT_TOKEN, top_logprobs=array(members(**CHAT_TOKEN)))), refusal=NULL
    ),
    "Completion": _whole("text_completion", COMPLETION),
    "CompletionChunk": _chunk("text_completion", COMPLETION),
    "ChatCompletion": _whole("chat.completion", CHAT),
    "ChatCompletionChunk": _chunk("chat.completion.chunk", CHAT_PIECE),
    "Model": members(
        id=STRING,
        object={"const": "model"},
        type={"const": "model"},
        created=INTEGER,
        created_at={"type": "string", "format": "date-time"},
        owned_by=STRING,
        display_name=STRING,
        lifecycle={"const": "active"},
        max_input_tokens=COUNT,
        max_tokens=COUNT,
        capabilities=members(structured_outputs=members(supported=BOOLEAN)),
    ),
    "ModelList": members(
        object={"const": "list"},
        data=array(ref("Model")),
        has_more=BOOLEAN,
        first_id=nullable(STRING),
        last_id=nullable(STRING),
    ),
    "Tokens": members(tokens=array(COUNT), count=COUNT, max_model_len=COUNT),
    "Prompt": members(prompt=STRING),
    "SchemaReport": members(
        object={"const": "schema.report"},
        supported=BOOLEAN,
        hash=nullable(HASH),
        errors=array(ref("Finding")),
        warnings=array(ref("Warning")),
        minimum_tokens=nullable(COUNT),
        shortest_example=nullable(STRING),
        estimated_states=nullable(COUNT),
    ),
    "Schema": members(
        object={"const": "schema"},
        hash=HASH,
        status=one_of("ready", "compiling"),
        cache=nullable(TIER),
        compile_ms=nullable(NUMBER),
        states=nullable(COUNT),
        table_bytes=nullable(COUNT),
        minimum_tokens=nullable(COUNT),
        warnings=nullable(array(ref("Warning"))),
    ),
    "SchemaList": members(object={"const": "list"}, data=array(ref("Schema")), has_more=BOOLEAN),
    "DeletedSchema": members(hash=STRING, deleted={"const": True}),
    "Health": members(status={"const": "ok"}),
    "Readiness": members(status={"const": "ready"}),
    "Version": members(version=STRING),
    "Error": members(
        error=members(
            {"errors": array(ref("Finding"))},
            message=STRING,
            type=one_of("invalid_request_error", "rate_limit_error", "server_error"),
            param=nullable(STRING),
            code=nullable(STRING),
        )
    ),
    "AnthropicError": members(
        type={"const": "error"},
        error=members(type=STRING, message=STRING, details=members(error_code=nullable(STRING))),
        request_id=STRING,
    ),
}
