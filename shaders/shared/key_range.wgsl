// The keys that token t sees: from x to below y. Token t stands at past + t. Needs Params.
fn key_range(t: u32) -> vec2<u32> {
    let position = params.past + t;
    let end = select(params.kv_len, min(params.kv_len, position + 1u), params.causal != 0u);
    let first = select(0u, position + 1u - min(params.window, position + 1u), params.window != 0u);
    return vec2(min(first, end), end);
}
