#define WL_FN static __device__ __forceinline__
#define WL_ALIGN(bytes) __align__(bytes)
#if __CUDA_ARCH__ >= 900
#define wl_begin() asm volatile("griddepcontrol.launch_dependents;")
#define wl_wait() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define wl_begin()
#define wl_wait()
#endif
typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned short f16;

typedef struct { u32 n; f32 a; } Params;
typedef char wl_size_of_Params[sizeof(Params) == 8 ? 1 : -1];
typedef struct { u32 x; u32 y; } wl_Lengths;
typedef struct { u32 x, y, z; } u32x3;
WL_FN u32 wl_min_u32(u32 a, u32 b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(64) kernel_main(const Params* __restrict__ params, const f32* x, f32* y, const wl_Lengths wl_lengths) {
    wl_begin();
    const u32x3 id = u32x3{blockIdx.x * 64u + threadIdx.x, blockIdx.y * 1u + threadIdx.y, blockIdx.z * 1u + threadIdx.z};
    u32 i = 0u;
    i = id.x;
    wl_wait();
    for (;;) {
        const u32 e3 = i;
        const u32 e6 = params->n;
        if (!(e3 < e6)) {
            break;
        }
        {
            const u32 e9 = i;
            const f32 e13 = params->a;
            const u32 e15 = i;
            const f32 e17 = x[wl_min_u32((u32)(e15), wl_lengths.x - 1u)];
            const u32 e19 = i;
            const f32 e21 = y[wl_min_u32((u32)(e19), wl_lengths.y - 1u)];
            y[wl_min_u32((u32)(e9), wl_lengths.y - 1u)] = fmaf(e13, e17, e21);
        }
        const u32 e23 = i;
        i = (e23 + 64u);
    }
    return;
}
