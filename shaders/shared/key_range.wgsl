// The keys that token t attends to: from x to below y. Needs Params, and SPANS: the binding after
// the other inputs (in attn_split_kv_fused, after its scratch buffer). Token t is at position past + t;
// with spans, at the last key of its span. With sinks, each head has a key without a value.
#ifdef spans
const INPUTS: u32 = SPANS;

@group(0) @binding(SPANS) var<storage, read> spans: array<i32>;

fn key_range(t: u32) -> vec2<u32> {
    let first = u32(max(spans[params.spans_offset + 2u * t], 0));
    let last = u32(max(spans[params.spans_offset + 2u * t + 1u], 0));
    let window = select(0u, last - min(params.window, last), params.window != 0u);
    let end = min(params.kv_len, last);
    return vec2(min(max(first, window), end), end);
}
#else
const INPUTS: u32 = SPANS - 1u;

fn key_range(t: u32) -> vec2<u32> {
    let position = params.past + t;
    let end = select(params.kv_len, min(params.kv_len, position + 1u), params.causal != 0u);
    let first = select(0u, position + 1u - min(params.window, position + 1u), params.window != 0u);
    return vec2(min(first, end), end);
}
#endif
#ifdef sinks
const OWN_READS: u32 = INPUTS + 1u;

@group(0) @binding(OWN_READS) var<storage, read> sinks: array<f32>;

// Weight of the sink of a head, relative to the largest score: infinite where that is far below,
// so that other keys vanish.
fn sink_weight(head: u32, largest: f32) -> f32 {
    return exp(sinks[params.sinks_offset + head] - largest);
}
#else
const OWN_READS: u32 = INPUTS;
#endif
