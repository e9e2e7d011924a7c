#define WL_FN static inline
#define WL_ALIGN(bytes) __attribute__((aligned(bytes)))
typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned short f16;

typedef struct { u32 n; f32 a; } Params;
typedef char wl_size_of_Params[sizeof(Params) == 8 ? 1 : -1];
typedef struct { u32 x; u32 y; } wl_Lengths;
typedef struct { u32 x, y, z; } u32x3;
WL_FN u32 wl_min_u32(u32 a, u32 b) { return a < b ? a : b; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void kernel_main(const __global Params* restrict params, const ulong wl_at_params, const __global f32* restrict x, const ulong wl_at_x, __global f32* restrict y, const ulong wl_at_y, const wl_Lengths wl_lengths) {
    params = (const __global Params*)((__global char*)params + wl_at_params);
    x = (const __global f32*)((__global char*)x + wl_at_x);
    y = (__global f32*)((__global char*)y + wl_at_y);
    const u32x3 id = ((u32x3){(u32)get_group_id(0) * 64u + (u32)get_local_id(0), (u32)get_group_id(1) * 1u + (u32)get_local_id(1), (u32)get_group_id(2) * 1u + (u32)get_local_id(2)});
    u32 i = 0u;
    i = id.x;
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
            y[wl_min_u32((u32)(e9), wl_lengths.y - 1u)] = fma(e13, e17, e21);
        }
        const u32 e23 = i;
        i = (e23 + 64u);
    }
    return;
}
