// The first parameters of attention, in catalogue order: sizes, token positions, mask.
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    kv_len: u32,
#ifdef spans
    spans_offset: u32,
#else
    past: u32,
#endif
    window: u32,
    causal: u32,
