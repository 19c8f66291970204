"""Records over HTTP from our server and from any other that speaks OpenAI's dialect, side by side.

In order:

    heading.json    the article's schema, its levels in English
    tasks           prompts, and what a record of each would have to say
    client          one server asked by several clients at once
    judging         what records are worth
    server          our own, started for the measurement; what its metrics say of the steps
    report          what came of it, as plain values
    run             turns of all servers, one after another
    tables          on the terminal
"""
