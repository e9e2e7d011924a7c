#define WL_FN static inline
#define WL_ALIGN(bytes) __attribute__((aligned(bytes)))
typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned short f16;
#pragma OPENCL EXTENSION cl_khr_subgroup_ballot : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

typedef struct WL_ALIGN(8) { f32 x, y; } f32x2;
typedef struct { u32 y; } wl_Lengths;
typedef struct { u32 n; f32 scale; } Sizes;
typedef char wl_size_of_Sizes[sizeof(Sizes) == 8 ? 1 : -1];
WL_FN u32 wl_index(void) { return (u32)get_local_id(0); }
WL_FN u32 wl_min_u32(u32 a, u32 b) { return a < b ? a : b; }
WL_FN f32x2 wl_multiply_f32x2vs(f32x2 a, f32 b) {
    f32x2 r;
    r.x = (a.x * b);
    r.y = (a.y * b);
    return r;
}
WL_FN f32x2 wl_add_f32x2(f32x2 a, f32x2 b) {
    f32x2 r;
    r.x = (a.x + b.x);
    r.y = (a.y + b.y);
    return r;
}
typedef struct WL_ALIGN(16) { u32 x, y, z, w; } u32x4;

__kernel __attribute__((reqd_work_group_size(48, 1, 1)))
void kernel_main(__global f32x2* restrict y, const ulong wl_at_y, const wl_Lengths wl_lengths, const Sizes sizes) {
    y = (__global f32x2*)((__global char*)y + wl_at_y);
    const u32 i = wl_index();
    const u32 lane = get_sub_group_local_id();
    const u32 size = get_max_sub_group_size();
    f32x2 sum = ((f32x2){0});
    const f32x2 e5 = y[wl_min_u32((u32)(i), wl_lengths.y - 1u)];
    const f32x2 lanes = e5;
    const f32x2 e6 = ((f32x2){sub_group_reduce_add(lanes.x), sub_group_reduce_add(lanes.y)});
    const f32 e9 = sizes.scale;
    sum = wl_multiply_f32x2vs(e6, e9);
    const f32x2 e12 = sum;
    const f32x2 e13 = sum;
    const f32x2 lanes_1 = e13;
    const f32x2 e15 = ((f32x2){sub_group_shuffle_xor(lanes_1.x, (u32)(1u)), sub_group_shuffle_xor(lanes_1.y, (u32)(1u))});
    sum = wl_add_f32x2(e12, e15);
    const u32 before = sub_group_scan_exclusive_add(i);
    const uint4 ballot = sub_group_ballot(((i & 1u) == 1u));
    const u32x4 odd = ((u32x4){ballot.x, ballot.y, ballot.z, ballot.w});
    const u32 e25 = sizes.n;
    const bool e27 = (sub_group_any((lane >= e25)) != 0);
    if (e27) {
        const f32 e29 = sum.x;
        sum.x = (e29 + (f32)((before + odd.x) + size));
    }
    const f32x2 e37 = sum;
    y[wl_min_u32((u32)(i), wl_lengths.y - 1u)] = e37;
    return;
}
