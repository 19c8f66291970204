"""Llama-type decoders: SmolLM2, Llama 2 and 3, Mistral without a window, Qwen2.

    config       what a checkpoint says of itself, in one form
    rotary       positions -> turns of pairs
    weights      a checkpoint -> arrays as the forward pass reads them
    prepared     the same, kept on disk and memory-mapped
    kv_cache     keys and values, slot by slot, within one bound of memory
    attention    rows of a pass over their slots
    decoder      a batch in, hidden states and logits out

Checkpoints are read by `engine.models.gguf_file` and `engine.models.hf_folder`.
"""
