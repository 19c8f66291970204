"""The experiments of an article on constrained decoding, repeated on the models that ship with the project.

In order, one experiment a file:

    published, report     the article's figures; what an experiment hands on
    subject               two models behind one engine, and how records are drawn
    setup                 corpus and models
    failures, methods     five ways to have records, and why records fail
    retry                 attempts until a valid record
    automata              sizes, times, the blow-up, a drawing
    costs                 the mask beside the forward pass
    truncation            limits that are too small
    distribution          what the mask bends
    borders               tokens across the grammar's borders
    token_masks, tokens   three masks over tokens
    run                   all of them
    tables, plots, page   on the terminal, as SVG, for docs/

Masks that are wrong on purpose, for comparison, live here and nowhere in the product.
"""
