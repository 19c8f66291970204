"""The HTTP API as an OpenAPI document.

    shapes      JSON Schemas in few words
    bodies      what routes take, from the pydantic models that check it
    answers     what routes give
    examples    requests that run as they stand
    document    all of it, put together

In: the bodies' models and the names of the models that are loaded. Out: an OpenAPI 3.1 document as JSON. Cost: some
milliseconds, once the models are loaded. Tests hold real answers against it. Rejected: the framework's own document,
which is made of function signatures, and these read bodies by hand.
"""

from app.openapi.document import build_document

__all__ = ["build_document"]
