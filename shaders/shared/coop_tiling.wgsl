// Tiling of a tensor-core GEMM that decodes weights: a workgroup of WI x WJ subgroups computes
// BM x BN of y, BK columns at a time; a subgroup computes TI x 2 TH tiles of 16 x 16. TH of them are
// in each half of the workgroup's columns, so that both products of an evaluation belong to one
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
const BK: u32 = 32u;
// Row stride of a tile in vec4s: 32 f16 and 8 of padding.
const STRIDE: u32 = 10u;
// Tile rows written by all threads at once, and the maximum vec4s of x and loads of 16 weights per
// thread and step.
const PASS_ROWS: u32 = THREADS / 8u;
const X_LOADS: u32 = (BM * 8u + THREADS - 1u) / THREADS;
const W_LOADS: u32 = (BN * 2u + THREADS - 1u) / THREADS;
// Row stride of the output stage in floats: two tiles and padding.
const OUT_STRIDE: u32 = 36u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
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

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}
