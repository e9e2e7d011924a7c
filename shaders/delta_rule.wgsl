// delta_rule: the gated delta rule, a recurrence over tokens: for each sequence and head, with a state
// S [DK, dv] and key head h % key_heads: S = exp(decay) S, S += k (beta (v - k S)), y = q S. q, k
// [sequences, tokens, key_heads, DK], v [sequences, tokens, heads, dv], decay and beta [sequences,
// tokens, heads], state [sequences, heads, DK, dv]; y [sequences, heads, tokens + DK, dv]: the
// results, then the state. A factor exp(decay) of 0 clears the state, whatever it holds.
// Work split: one workgroup per sequence, head and 64 / LANES columns of dv. LANES threads share a
// column: each keeps DK / LANES elements of it in registers; their sums go through workgroup memory.
// Why: columns do not depend on each other, and a token waits for the one before, so that a state in
// registers saves all its traffic. Several threads for a column shorten the wait.
override DK: u32 = 128;
override LANES: u32 = 4;

const WG: u32 = 64u;
const COLUMNS: u32 = WG / LANES;
const OWN: u32 = DK / LANES;
const_assert LANES >= 1u && LANES <= 16u && (LANES & (LANES - 1u)) == 0u && DK % LANES == 0u;

struct Params {
    sequences: u32,
    tokens: u32,
    key_heads: u32,
    heads: u32,
    dk: u32,
    dv: u32,
    q_offset: u32,
    k_offset: u32,
    v_offset: u32,
    decay_offset: u32,
    beta_offset: u32,
    state_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> decay: array<f32>;
@group(0) @binding(5) var<storage, read> beta: array<f32>;
@group(0) @binding(6) var<storage, read> state: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

var<workgroup> keys: array<f32, DK>;
var<workgroup> queries: array<f32, DK>;
var<workgroup> sums: array<f32, WG>;

// The sum over the threads of a column. Between two calls lies a barrier.
fn column_sum(value: f32, lid: u32) -> f32 {
    if (LANES == 1u) {
        return value;
    }
    sums[lid] = value;
    workgroupBarrier();
    var sum = 0.0;
    let first = lid % COLUMNS;
    for (var lane = 0u; lane < LANES; lane++) {
        sum += sums[first + lane * COLUMNS];
    }
    return sum;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let pair = wid.z * grid.y + wid.y;
    if (pair >= params.sequences * params.heads) {
        return;
    }
    let sequence = pair / params.heads;
    let head = pair % params.heads;
    // Neighbouring threads have neighbouring columns. Columns past the end repeat the last one and
    // are not stored.
    let column = wid.x * COLUMNS + lid % COLUMNS;
    let j = min(column, params.dv - 1u);
    let first_i = lid / COLUMNS * OWN;
    let start = params.state_offset + (pair * DK + first_i) * params.dv + j;
#repeat i OWN
    var s$i = state[start + $iu * params.dv];
#end
    let out = params.y_offset + pair * (params.tokens + DK) * params.dv + j;
    for (var t = 0u; t < params.tokens; t++) {
        let token = sequence * params.tokens + t;
        let of_key = (token * params.key_heads + head % params.key_heads) * DK;
        for (var i = lid; i < DK; i += WG) {
            keys[i] = k[params.k_offset + of_key + i];
            queries[i] = q[params.q_offset + of_key + i];
        }
        workgroupBarrier();
        let at = token * params.heads + head;
        let factor = exp(decay[params.decay_offset + at]);
        var found = 0.0;
#repeat i OWN
        // Not a product: what a state holds may be no number.
        s$i = select(s$i * factor, 0.0, factor == 0.0);
        found += keys[first_i + $iu] * s$i;
#end
        found = column_sum(found, lid);
        let change = (v[params.v_offset + at * params.dv + j] - found) * beta[params.beta_offset + at];
        var result = 0.0;
#repeat i OWN
        s$i += keys[first_i + $iu] * change;
        result += queries[first_i + $iu] * s$i;
#end
        workgroupBarrier();
        result = column_sum(result, lid);
        if (lid < COLUMNS && column < params.dv) {
            y[out + t * params.dv] = result;
        }
        workgroupBarrier();
    }
    if (column < params.dv) {
#repeat i OWN
        y[out + (params.tokens + first_i + $iu) * params.dv] = s$i;
#end
    }
}
