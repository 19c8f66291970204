"""HTTP and the command line: requests in, the engine's types across, JSON out.

The life of a request, a file a stage:

    middleware  a request id, on the response and in the log
    body        bytes -> one JSON object, within limits (json_text reads files of the command line too)
    protocol/   fields checked, the engine's `Request` built
    gate        is work taken now; the client gone, the grace over
    (engine)    `Request` -> `Result`
    proof       each complete text judged by a validator that shares no code with the compiler
    protocol/   the answer's body and headers

Whatever goes wrong on the way is an exception, and `errors` holds the one table from exception class to status and
body; `words` says what was expected of a value and what was found. Routes and commands translate and nothing more.
"""
