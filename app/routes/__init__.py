"""Routes: parse, call, answer."""

READING = ["GET", "HEAD"]  # HEAD is GET without the body, which the web server leaves out
