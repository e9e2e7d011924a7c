// Tiling of a tensor-core GEMM, its parameters and its epilogue.
const OWN_READS: u32 = 3u;
const TASK_ROWS: u32 = BN;

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

#import coop_tiling

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
