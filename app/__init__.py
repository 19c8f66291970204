"""HTTP and the command line: requests in, the engine's types across, JSON out.

    blas_threads, settings      what is told from outside, threads before numpy is there
    main        the application, put together
    server      the application behind a socket, until it is told to stop
    cli/        the commands, a file each; bench/ has what `katagami bench` measures
    routes/     the routes, which call what follows

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
body. `words` says what was expected of a value and what was found, `findings` what is wrong with a schema, `version`
which distribution this is. Routes and commands translate and nothing more.
"""
