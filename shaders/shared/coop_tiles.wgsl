// Tiles of a product on matrix hardware: how they are cut, and how sums leave. Needs nothing.
// A workgroup of WI x WJ subgroups makes BM x BN of y from BK columns of both operands at a time; a subgroup
// multiplies TI x 2 TH tiles of 16 x 16, of which TH lie in each half of the workgroup's columns, so that both
// products of an evaluation are its own.
// Why: 64 x 64 for a subgroup keeps the matrix units busy with what is read from workgroup memory; rows of 40
// halves are the padding with the fewest bank conflicts. Sums leave through workgroup memory, because nothing
// reads elements of a cooperative matrix.
override TI: u32 = 4;
override TH: u32 = 2;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup, all of the same size.
override SUB: u32 = 32;

const SUBGROUPS: u32 = WI * WJ;
const THREADS: u32 = SUBGROUPS * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TH * 32u;
const OWN_READS: u32 = 3u;
const TASK_ROWS: u32 = BN;
const BK: u32 = 32u;
// vec4s from row to row of a tile: 32 halves and 8 of padding.
const STRIDE: u32 = 10u;
// Rows of a tile that all threads write at once, and what a thread loads of x for a step, at most: vec4s.
const PASS_ROWS: u32 = THREADS / 8u;
const X_LOADS: u32 = (BM * 8u + THREADS - 1u) / THREADS;
// Numbers from row to row of the sums that leave: two tiles and padding.
const OUT_STRIDE: u32 = 36u;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
#import attached_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> factors: array<f32>;

var<workgroup> x_tile: array<vec4<f16>, BM * STRIDE>;
var<workgroup> w_tile: array<vec4<f16>, BN * STRIDE>;
var<workgroup> row_factors: array<f32, BM>;
var<workgroup> sums: array<f32, SUBGROUPS * 16u * OUT_STRIDE>;
// As long as it is so that whatever lies behind it starts at 16 bytes, as matrices must: they are read wrongly
// elsewhere, without an error.
var<workgroup> working: vec4<u32>;

#import tile_row

#import attached_rows
#import attached_fetch

// Numbers of a tile that a thread takes from sums, four at a time: more of them unrolled are slower on an H200,
// where they are a rotation.
const LEAVES: u32 = 256u / SUB;

// Two tiles of a subgroup, half the workgroup's columns apart, from sums to where they go. What is read for a tile
// is on its way before the first number of it is stored.
fn leave(task: Task, subgroup: u32, lane: u32, first_i: u32, own_i: u32, first_e: u32) {
    workgroupBarrier();
    for (var side = 0u; side < 2u; side++) {
        let e = first_e + lane % 16u + side * (BN / 2u);
        if (e >= evaluations(task)) {
            break;
        }
        for (var u = 0u; u < LEAVES; u += 4u) {
            let r = lane / 16u + u * (SUB / 16u);
            let at = (subgroup * 16u + r) * OUT_STRIDE + lane % 16u + side * 16u;
            let i = first_i + own_i + r;
#repeat t 4
            let fetched$t = fetch(task, e, i + $tu * (SUB / 16u));
#end
#repeat t 4
            let factor$t = row_factors[own_i + r + $tu * (SUB / 16u)];
            let low$t = sums[at + $tu * (SUB / 16u) * OUT_STRIDE] * factor$t;
            let high$t = sums[at + $tu * (SUB / 16u) * OUT_STRIDE + (1u - side) * 16u] * factor$t;
            finish(task, e, i + $tu * (SUB / 16u), low$t, high$t, fetched$t);
#end
        }
    }
    workgroupBarrier();
}
