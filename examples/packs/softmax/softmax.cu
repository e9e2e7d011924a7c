// Same as softmax.wgsl, for CUDA: one block per row. The threads of a warp reduce with shuffles,
// which WGSL packs do not have, and the warps reduce once in shared memory.
struct Params {
    unsigned rows;
    unsigned n;
};

constexpr unsigned THREADS = WORKGROUP_X;
constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

__device__ float largest_of(float a, float b) { return fmaxf(a, b); }
__device__ float sum_of(float a, float b) { return a + b; }

/// Reduces the values of all threads of the block in pairs; every thread gets the result.
template <float (*join)(float, float)>
__device__ float over_block(float value, float* parts) {
    for (unsigned lane = 16; lane > 0; lane /= 2) {
        value = join(value, __shfl_xor_sync(ALL, value, lane));
    }
    // Earlier contents are read before they are overwritten.
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = parts[0];
    for (unsigned warp = 1; warp < WARPS; warp++) {
        value = join(value, parts[warp]);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel_main(
    const Params* __restrict__ params,
    const float* __restrict__ x,
    float* __restrict__ y
) {
    __shared__ float parts[WARPS];
    const size_t row = size_t(blockIdx.y) * gridDim.x + blockIdx.x;
    if (row >= params->rows) {
        return;
    }
    const unsigned n = params->n;
    x += row * n;
    y += row * n;

    // Starts at the lowest finite value, so that a row of -inf yields no NaN.
    float largest = -3.4028234e38f;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        largest = fmaxf(largest, x[i]);
    }
    largest = over_block<largest_of>(largest, parts);

    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        sum += expf(x[i] - largest);
    }
    sum = over_block<sum_of>(sum, parts);

    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        y[i] = sum == 0.0f ? 0.0f : expf(x[i] - largest) / sum;
    }
}
