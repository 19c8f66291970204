"""Request and response bodies: the wire format on one side, the engine's types on the other."""
