"""HTTP and the command line: requests in, the engine's types across, JSON out.

The life of a request, a file a stage:

    connections heads in time, readers that read, no more than may be
    middleware  a request id (exchange), the log (logs) and the figures (metrics); an API key (keys); a body in time
    body        bytes -> one JSON object, within limits (json_text reads files of the command line too)
    protocol/   fields checked, messages made a prompt (chat_template), the engine's `Request` built
    gate        is work taken now; the client gone, the grace over
    (engine)    `Request` -> `Result`, or events
    outbox      events, for a reader who may be slow
    proof       each complete text judged by a validator that shares no code with the compiler
    protocol/   the answer's body and headers, or its chunks
    streams     chunks -> server-sent events
    generating  all of this in a row, for the routes that generate
    prewarm     schemas compiled before anybody needs them
    openapi/    all routes, bodies and answers as a document

Whatever goes wrong on the way is an exception, and `errors` holds the one table from exception class to status and
body; `words` says what was expected of a value and what was found. Routes and commands translate and nothing more.
"""
