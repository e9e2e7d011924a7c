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

typedef struct { u32 count; char wl_pad0[12]; } List;
typedef struct { f32 x, y, z; } f32x3;
typedef struct WL_ALIGN(16) { f32x3 v; f32 gap; } f32x3s;
typedef struct { u32 list; u32 y; } wl_Lengths;
typedef struct { u32 x, y, z; } u32x3;
typedef struct { f32x3s c[3]; } f32m3x3;
typedef struct WL_ALIGN(8) { f16 x, y, z, w; } f16x4;
typedef struct { f32x3 place; u32 kind; f32m3x3 turn; f16x4 weights; char wl_pad0[8]; } Item;
typedef char wl_size_of_Item[sizeof(Item) == 80 ? 1 : -1];
WL_FN u32 wl_min_u32(u32 a, u32 b) { return a < b ? a : b; }
typedef struct WL_ALIGN(16) { i32 x, y, z, w; } i32x4;
WL_FN i32 wl_unpack4xI8_part(u32 bits) { const i32 a = (i32)(bits << 24) >> 24; return a; }
WL_FN i32x4 wl_unpack4xI8(u32 word) { i32x4 r; r.x = wl_unpack4xI8_part(word >> 0); r.y = wl_unpack4xI8_part(word >> 8); r.z = wl_unpack4xI8_part(word >> 16); r.w = wl_unpack4xI8_part(word >> 24); return r; }
typedef struct WL_ALIGN(16) { f32 x, y, z, w; } f32x4;
WL_FN f32 wl_f32_of_f16(f16 a) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r; }
WL_FN f32x4 wl_value_f16x4(f16x4 a) {
    f32x4 r;
    r.x = wl_f32_of_f16(a.x);
    r.y = wl_f32_of_f16(a.y);
    r.z = wl_f32_of_f16(a.z);
    r.w = wl_f32_of_f16(a.w);
    return r;
}
WL_FN f32 wl_at_f32x4(f32x4 v, u32 i) { return i == 0u ? v.x : i == 1u ? v.y : i == 2u ? v.z : v.w; }
WL_FN f16 wl_f16_of_f32(f32 a) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
WL_FN f32 wl_round_f16(f32 a) { return wl_f32_of_f16(wl_f16_of_f32(a)); }
WL_FN i32 wl_dot4_i8(u32 a, u32 b, i32 c) { return __dp4a((i32)a, (i32)b, c); }
WL_FN f32x3 wl_zyx_f32x3(f32x3 v) { f32x3 r; r.x = v.z; r.y = v.y; r.z = v.x; return r; }
WL_FN f32x3 wl_multiply_f32m3x3_f32x3(f32m3x3 a, f32x3 b) {
    f32x3 o;
    o.x = a.c[0].v.x * b.x + a.c[1].v.x * b.y + a.c[2].v.x * b.z;
    o.y = a.c[0].v.y * b.x + a.c[1].v.y * b.y + a.c[2].v.y * b.z;
    o.z = a.c[0].v.z * b.x + a.c[1].v.z * b.y + a.c[2].v.z * b.z;
    return o;
}
WL_FN f32x3 wl_multiply_f32x3vs(f32x3 a, f32 b) {
    f32x3 r;
    r.x = (a.x * b);
    r.y = (a.y * b);
    r.z = (a.z * b);
    return r;
}
typedef struct { f32x3s e[2]; } v_f32x3s_2;
static __device__ const v_f32x3s_2 const_LIMITS = {{{{1.0f, 2.0f, 3.0f}, 0}, {{4.0f, 5.0f, 6.0f}, 0}}};
WL_FN u32 wl_rem_u32(u32 a, u32 b) { return a % (b == 0u ? 1u : b); }
WL_FN f32x3 wl_neg_f32x3(f32x3 a) {
    f32x3 r;
    r.x = (-a.x);
    r.y = (-a.y);
    r.z = (-a.z);
    return r;
}
WL_FN f32x3 wl_clamp_f32x3(f32x3 a, f32x3 b, f32x3 c) {
    f32x3 r;
    r.x = fminf(fmaxf(a.x, b.x), c.x);
    r.y = fminf(fmaxf(a.y, b.y), c.y);
    r.z = fminf(fmaxf(a.z, b.z), c.z);
    return r;
}
WL_FN f32x3 wl_splat_f32x3s(f32 a) {
    f32x3 r;
    r.x = a;
    r.y = a;
    r.z = a;
    return r;
}
WL_FN f32x3 wl_add_f32x3(f32x3 a, f32x3 b) {
    f32x3 r;
    r.x = (a.x + b.x);
    r.y = (a.y + b.y);
    r.z = (a.z + b.z);
    return r;
}

extern "C" __global__ void __launch_bounds__(32) kernel_main(const List* list, f32x3s* y, const wl_Lengths wl_lengths) {
    wl_begin();
    const u32x3 id = u32x3{blockIdx.x * 8u + threadIdx.x, blockIdx.y * 4u + threadIdx.y, blockIdx.z * 1u + threadIdx.z};
    wl_wait();
    const Item item = ((const Item*)((const char*)list + 16))[wl_min_u32((u32)(id.x), wl_lengths.list - 1u)];
    const i32x4 bytes = wl_unpack4xI8(item.kind);
    const f32x4 e8 = wl_value_f16x4(item.weights);
    const f32 weight = (wl_round_f16((wl_at_f32x4(e8, (u32)((id.y & 3u))) * 2.0f)) + (f32)wl_dot4_i8(item.kind, 16843009u, 0));
    const f32x3 place = wl_multiply_f32x3vs(wl_multiply_f32m3x3_f32x3(item.turn, wl_zyx_f32x3(item.place)), weight);
    y[wl_min_u32((u32)(id.y), wl_lengths.y - 1u)].v = wl_add_f32x3(wl_clamp_f32x3(place, wl_neg_f32x3(const_LIMITS.e[wl_min_u32((u32)(wl_rem_u32(id.x, 2u)), 1u)].v), const_LIMITS.e[wl_min_u32((u32)(wl_rem_u32(id.x, 2u)), 1u)].v), wl_splat_f32x3s((f32)bytes.x));
    return;
}
