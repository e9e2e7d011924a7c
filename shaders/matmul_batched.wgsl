// matmul_batched: batched tiled GEMM: y[b, i, j] = sum over c of a[b, i, c] * b[b, c, j]. Any
// strides, y [batch, m, n].
// Work split: one workgroup per 16 x 16 tile of y in a batch, one thread per element, with 16 x 16
// tiles of a and b in workgroup memory.
// Why: any layout of either operand is read once per 16 results. Meant for small products of
// activations; large ones are linear layers.
const TILE: u32 = 16u;
// Padded by one column against bank conflicts.
const STRIDE: u32 = 17u;
const OWN_READS: u32 = 2u;

#import batched_operands
#import fusion_x
#import fusion_store

var<workgroup> a_tile: array<f32, TILE * STRIDE>;
var<workgroup> b_tile: array<f32, TILE * STRIDE>;

@compute @workgroup_size(TILE, TILE)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    if (params.m == 0u || params.n == 0u) {
        return;
    }
    let i = wid.y * TILE + local.y;
    let j = wid.x * TILE + local.x;
    // A batch count may exceed the limit of a grid dimension.
    for (var batch = wid.z; batch < params.batch; batch += groups.z) {
        let a_start = params.a_offset + batch * params.a_batch_stride;
        let b_start = params.b_offset + batch * params.b_batch_stride;
        var sum = 0.0;
        for (var c = 0u; c < params.k; c += TILE) {
            let a_col = c + local.x;
            var a_value = 0.0;
            if (i < params.m && a_col < params.k) {
                a_value = a[a_start + i * params.a_row_stride + a_col * params.a_col_stride];
                a_value = prologue(batch * params.m + i, a_col, a_value);
            }
            let b_row = c + local.y;
            var b_value = 0.0;
            if (j < params.n && b_row < params.k) {
                b_value = b[b_start + b_row * params.b_row_stride + j * params.b_col_stride];
            }
            a_tile[local.y * STRIDE + local.x] = a_value;
            b_tile[local.y * STRIDE + local.x] = b_value;
            workgroupBarrier();
            for (var t = 0u; t < TILE; t++) {
                sum += a_tile[local.y * STRIDE + t] * b_tile[t * STRIDE + local.x];
            }
            workgroupBarrier();
        }
        if (i < params.m && j < params.n) {
            store(batch, i, j, sum);
        }
    }
}
