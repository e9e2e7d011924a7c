// The keys that token t attends to: from x to below y. Needs Params, and SPANS: the binding after
// the other inputs (in attn_split_kv_fused, after its scratch buffer). Token t is at position past + t;
// with spans, at the last key of its span.
#ifdef spans
const OWN_READS: u32 = SPANS;

@group(0) @binding(SPANS) var<storage, read> spans: array<i32>;

fn key_range(t: u32) -> vec2<u32> {
    let first = u32(max(spans[params.spans_offset + 2u * t], 0));
    let last = u32(max(spans[params.spans_offset + 2u * t + 1u], 0));
    let window = select(0u, last - min(params.window, last), params.window != 0u);
    let end = min(params.kv_len, last);
    return vec2(min(max(first, window), end), end);
}
#else
const OWN_READS: u32 = SPANS - 1u;

fn key_range(t: u32) -> vec2<u32> {
    let position = params.past + t;
    let end = select(params.kv_len, min(params.kv_len, position + 1u), params.causal != 0u);
    let first = select(0u, position + 1u - min(params.window, position + 1u), params.window != 0u);
    return vec2(min(first, end), end);
}
#endif
