// scaled_rows: y[i, r] = factors[i] * sum over s of sums[s, i, r]; sums [SPLITS, m, n] f32, its rows sums_stride and
// its parts part_stride apart, factors [m], y [m, n]. Where halves are handed on: row_handed.
// Work split: a workgroup a group of TASK_ROWS columns and ROWS rows, neighbouring threads neighbouring columns;
// grid x counts groups of columns, grid y is ceil(m / ROWS).
// Why: matrix hardware multiplies halves and knows no factor of a row, and where few workgroups make the products, each
// would wait for what is read beside them: 50 us for a residual on an H200, where this takes 17.
override WG: u32 = 256;
override ROWS: u32 = 4;
override SPLITS: u32 = 1;
// Columns of rows that are handed on.
override K: u32 = 1024;
// Threads of every subgroup, 0 where they are not all of one size.
override SUB: u32 = 0;

#ifdef hands_on
// A workgroup makes all evaluations of a row.
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
#import attached_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;

#import attached_rows

#ifdef hands_on
#import row_handed
#else
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let task = task_of(wid.x);
    if (!exists(task)) {
        return;
    }
    // A product is of evaluation e or, where two meet in one, of e and the second row.
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
