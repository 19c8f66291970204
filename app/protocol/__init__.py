"""Request and response bodies: the wire format on one side, the engine's types on the other.

In:

    fields          how one field is checked, and how a fault is told
    structured      `response_format` and `structured_options`
    generation      what all bodies share that ask for text; the engine's `Request`
    tokens          token ids, checked and as people read them
    completions     the body of one route
    messages, schema_prompt, chat       that of the other: who said what, what is said of the format
    models          models by name, and the routes that list them
    schemas, tokenizing                 bodies of routes that generate nothing

Out:

    answers         what answers share: frame, ends, proof, headers
    logprobs        log-probabilities in two shapes
    completion_answers, chat_answers    how each route writes a choice
    chunks          the same in pieces
    stored_schemas  what is in the cache
"""
