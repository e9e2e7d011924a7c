// split_k_reduce: split-K reduction with epilogue (kin to CUTLASS's parallel split-K): y[i, r] =
// factors[i] * sum over s of sums[s, i, r].
// sums [SPLITS, m, n] f32 with row stride sums_stride and split stride part_stride, factors [m], y
// [m, n]. With a quant epilogue to f16: row_quant_epilogue.
// Work split: one workgroup per TASK_ROWS columns (grid x) and ROWS rows (grid y = ceil(m / ROWS));
// neighbouring threads take neighbouring columns.
// Why: tensor cores apply no row factor, and a GEMM with few workgroups would stall on epilogue
// operands: 50 us for a residual on an H200, against 17 here.
override WG: u32 = 256;
override ROWS: u32 = 4;
override SPLITS: u32 = 1;
// Columns per row of the quant epilogue.
override K: u32 = 1024;
// Threads of every subgroup, or 0 if sizes vary.
override SUB: u32 = 0;

#ifdef quant_epilogue
// With a quant epilogue, a workgroup makes all evaluations of a row.
const TURNS: u32 = (K + WG - 1u) / WG;
const TASK_ROWS: u32 = TURNS * WG * 2u;
#else
const TASK_ROWS: u32 = WG * 2u;
#endif
const OWN_READS: u32 = 2u;

struct Params {
    m: u32,
    n: u32,
    y_offset: u32,
    y_stride: u32,
    sums_stride: u32,
    part_stride: u32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;

#import fusion_rows

#ifdef quant_epilogue
#import row_quant_epilogue
#else
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let task = task_of(wid.x);
    if (!exists(task)) {
        return;
    }
    // A product is of evaluation e or, if two products form one evaluation, of e and the second
    // row.
    let each = evaluations(task);
    for (var e = lid; e < each; e += WG) {
        let first = row_of(task, e);
        let second = row_of(task, min(e + each, TASK_ROWS - 1u));
        let i = wid.y * ROWS;
#repeat t ROWS
        let at$t = min(i + $tu, params.m - 1u);
        var low$t = sums[at$t * params.sums_stride + first];
        var high$t = 0.0;
        if (ANCHORS > 1u) {
            high$t = sums[at$t * params.sums_stride + second];
        }
        let factor$t = factors[at$t];
#end
        for (var s = 1u; s < SPLITS; s++) {
            let part = s * params.part_stride;
#repeat t ROWS
            low$t += sums[part + at$t * params.sums_stride + first];
            if (ANCHORS > 1u) {
                high$t += sums[part + at$t * params.sums_stride + second];
            }
#end
        }
#repeat t ROWS
        store(task, e, i + $tu, low$t * factor$t, high$t * factor$t);
#end
    }
}
#endif
