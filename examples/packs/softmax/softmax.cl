// Same as softmax.wgsl, for OpenCL: one work-group per row, which reduces in local memory.
struct Params {
    uint rows;
    uint n;
};

__kernel __attribute__((reqd_work_group_size(WORKGROUP_X, 1, 1))) void kernel_main(
    __global const struct Params* restrict params,
    ulong params_at,
    __global const float* restrict x,
    ulong x_at,
    __global float* restrict y,
    ulong y_at
) {
    params = (__global const struct Params*)((__global const char*)params + params_at);
    __local float parts[WORKGROUP_X];
    const size_t row = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    if (row >= params->rows) {
        return;
    }
    const uint n = params->n, thread = get_local_id(0);
    x += x_at / sizeof(float) + row * n;
    y += y_at / sizeof(float) + row * n;

    // Starts at the lowest finite value, so that a row of -inf yields no NaN.
    float largest = -MAXFLOAT;
    for (uint i = thread; i < n; i += WORKGROUP_X) {
        largest = fmax(largest, x[i]);
    }
    parts[thread] = largest;
    for (uint f16_of = WORKGROUP_X / 2; f16_of > 0; f16_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < f16_of) {
            parts[thread] = fmax(parts[thread], parts[thread + f16_of]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    largest = parts[0];
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = 0.0f;
    for (uint i = thread; i < n; i += WORKGROUP_X) {
        sum += exp(x[i] - largest);
    }
    parts[thread] = sum;
    for (uint f16_of = WORKGROUP_X / 2; f16_of > 0; f16_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < f16_of) {
            parts[thread] += parts[thread + f16_of];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = parts[0];

    for (uint i = thread; i < n; i += WORKGROUP_X) {
        y[i] = sum == 0.0f ? 0.0f : exp(x[i] - largest) / sum;
    }
}
