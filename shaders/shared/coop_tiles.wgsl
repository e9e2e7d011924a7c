// Tiling of a tensor-core GEMM, and its epilogue. A workgroup of WI x WJ subgroups computes BM x BN
// of y, BK columns at a time; a subgroup computes TI x 2 TH tiles of 16 x 16. TH of them are in
// each half of the workgroup's columns, so that both products of an evaluation belong to one
// subgroup.
// Why: 64 x 64 per subgroup keeps the tensor cores busy; a row stride of 40 f16 has the fewest bank
// conflicts. Accumulators leave through workgroup memory, because WGSL cannot read elements of a
// cooperative matrix.
override TI: u32 = 4;
override TH: u32 = 2;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup; all subgroups have this size.
override SUB: u32 = 32;

const SUBGROUPS: u32 = WI * WJ;
const THREADS: u32 = SUBGROUPS * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TH * 32u;
const OWN_READS: u32 = 3u;
const TASK_ROWS: u32 = BN;
const BK: u32 = 32u;
// Row stride of a tile in vec4s: 32 f16 and 8 of padding.
const STRIDE: u32 = 10u;
// Tile rows written by all threads at once, and the maximum vec4s of x that a thread loads per
// step.
const PASS_ROWS: u32 = THREADS / 8u;
const X_LOADS: u32 = (BM * 8u + THREADS - 1u) / THREADS;
// Row stride of the output stage in floats: two tiles and padding.
const OUT_STRIDE: u32 = 36u;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> factors: array<f32>;

var<workgroup> x_tile: array<vec4<f16>, BM * STRIDE>;
var<workgroup> w_tile: array<vec4<f16>, BN * STRIDE>;
var<workgroup> row_factors: array<f32, BM>;
var<workgroup> sums: array<f32, SUBGROUPS * 16u * OUT_STRIDE>;
// 16 bytes, so that the variables after it stay 16-byte aligned, as cooperative matrices require.
// Loads from elsewhere give wrong values, without an error.
var<workgroup> working: vec4<u32>;

#import tile_row

#import fusion_rows
#import fusion_fetch

// Elements of a tile per thread, four at a time: unrolling more is slower on an H200, where they
// are a rotation.
const LEAVES: u32 = 256u / SUB;

// Applies the epilogue to two tiles of a subgroup, half the workgroup's columns apart, and stores
// them. A tile's epilogue operands are loaded before its first element is stored.
fn store_tile(task: Task, subgroup: u32, lane: u32, first_i: u32, own_i: u32, first_e: u32) {
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
