//! Kernels: control flow, layouts, memory, atomics, builtins, f16, subgroups.

use crate::semantics::{Case, Needs, POISON, f, i};

const BUFFERS: &str = "@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
";

/// A kernel after the declarations of both buffers.
fn kernel(name: &str, wgsl: &str, x: &[u32], expected: Vec<u32>) -> Case {
    whole(name, &format!("{BUFFERS}{wgsl}"), x, expected)
}

/// A kernel with its own buffers.
fn whole(name: &str, wgsl: &str, x: &[u32], expected: Vec<u32>) -> Case {
    Case {
        name: name.to_string(),
        wgsl: wgsl.to_string(),
        params: Vec::new(),
        x: x.to_vec(),
        expected,
        groups: [1; 3],
        labels: Vec::new(),
        ulps: Vec::new(),
        needs: Needs::Nothing,
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = control();
    all.extend(memory());
    all.extend(layouts());
    all.extend(atomics());
    all.extend(grids());
    all.extend(halves());
    all.extend(subgroups());
    all
}

fn control() -> Vec<Case> {
    vec![
        kernel(
            "for, continue and break",
            "@compute @workgroup_size(1) fn main() {
    var sum = 0u;
    for (var i = 0u; i < x[0]; i++) {
        if (i % 3u == 1u) { continue; }
        if (i == 9u) { break; }
        for (var j = 0u; j < i; j++) { if (j == 2u) { continue; } if (j > 4u) { break; } sum += 10u; }
        sum += i;
    }
    y[0] = sum;
}",
            &[20],
            vec![{
                let mut sum = 0;
                for i in (0..9).filter(|i| i % 3 != 1) {
                    sum += 10 * (0..i).take_while(|j| *j <= 4).filter(|j| *j != 2).count() as u32;
                    sum += i;
                }
                sum
            }],
        ),
        kernel(
            "loop, continuing and break if",
            "@compute @workgroup_size(1) fn main() {
    var i = 0u; var sum = 0u;
    loop {
        let twice = i * 2u;
        if (i == 3u) { continue; }
        switch (i) { case 5u: { continue; } default: { } }
        sum += twice;
        continuing { i += 1u; sum += twice & 1u; break if i >= x[0]; }
    }
    y[0] = sum; y[1] = i;
    loop { i -= 1u; if (i < 4u) { break; } continuing { sum += 1u; } }
    y[2] = sum; y[3] = i;
    while (i > 0u) { i -= 1u; }
    y[4] = i;
}",
            &[8],
            vec![2 * (1 + 2 + 4 + 6 + 7), 8, 2 * (1 + 2 + 4 + 6 + 7) + 4, 3, 0],
        ),
        kernel(
            "switch",
            "fn pick(a: i32) -> u32 {
    switch (a) { case -1, 7: { return 1u; } case 2: { if (a == 2) { break; } return 9u; } default: { return 3u; } }
    return 2u;
}
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {
    y[l] = pick(bitcast<i32>(x[l]));
}",
            &[i(-1), 7, 2, 0, 1, i(-2), 3, 8],
            vec![1, 1, 2, 3, 3, 3, 3, 3],
        ),
        kernel(
            "early return, if and else",
            "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {
    y[l] = 7u;
    if (l > 5u) { return; } else if (l > 3u) { y[l] = 5u; } else { if (l != 1u) { y[l] = x[l]; } }
    y[l] += 1u;
}",
            &[10, 20, 30, 40],
            vec![11, 8, 31, 41, 6, 6, 7, 7],
        ),
        kernel(
            "functions, pointers and private variables",
            "var<private> calls: u32 = 5u;
var<private> list: array<u32, 3>;
struct Pair { a: u32, b: vec3<u32> }
fn bump(p: ptr<function, u32>, by: u32) -> u32 { *p += by; calls += 1u; return *p * 2u; }
fn second(p: ptr<function, array<u32, 4>>) -> u32 { (*p)[1] += 1u; return (*p)[1]; }
fn swap(pair: Pair) -> Pair { return Pair(pair.b.y, vec3(pair.a, pair.b.zx)); }
fn component(p: ptr<function, vec4<u32>>, i: u32) { (*p)[i] = 77u; }
@compute @workgroup_size(1) fn main() {
    var a = x[0];
    y[0] = bump(&a, 3u) + bump(&a, 1u);
    y[1] = a; y[2] = calls;
    var all = array<u32, 4>(1u, 2u, 3u, x[1]);
    y[3] = second(&all) + second(&all) + all[x[2]];
    let pair = swap(Pair(1u, vec3(2u, 3u, 4u)));
    y[4] = pair.a; y[5] = pair.b.x; y[6] = pair.b.y; y[7] = pair.b.z;
    list[x[2] - 1u] = 6u; y[8] = list[2] + list[0];
    var v = vec4(1u, 2u, 3u, 4u); component(&v, x[2] - 2u);
    v[x[2]] += 10u; y[9] = v.x + v.y * 100u + v.w * 10000u;
}",
            &[10, 9, 3],
            vec![26 + 28, 14, 7, 3 + 4 + 9, 3, 1, 4, 2, 6, 1 + 7700 + 140_000],
        ),
        kernel(
            "constants: arrays, structs, matrices",
            "struct S { a: vec2<u32>, b: u32 }
const TABLE = array<u32, 5>(2u, 3u, 5u, 7u, 11u);
const PAIRS = array<S, 2>(S(vec2(1u, 2u), 3u), S(vec2(4u, 5u), 6u));
const M = mat2x2<f32>(1.0, 2.0, 3.0, 4.0);
const V = vec3<i32>(-1, 0, 5);
const ROWS = array<vec3<f32>, 2>(vec3(1.0, 2.0, 3.0), vec3(4.0, 5.0, 6.0));
@compute @workgroup_size(1) fn main() {
    let i = x[0];
    y[0] = TABLE[i]; y[1] = PAIRS[i - 2u].a.y + PAIRS[i - 2u].b;
    y[2] = bitcast<u32>(M[i - 2u].x); y[3] = bitcast<u32>(V[i - 1u]);
    y[4] = bitcast<u32>(ROWS[i - 2u].z);
    var m = M; m[i - 3u][1] = 9.0; m[1] *= 2.0; y[5] = u32(m[0].y + m[1].y);
    let all = TABLE; y[6] = all[i] + all[0];
}",
            &[3],
            vec![7, 11, f(3.0), 5, f(6.0), 17, 9],
        ),
    ]
}

fn memory() -> Vec<Case> {
    vec![
        kernel(
            "workgroup memory and barriers",
            "var<workgroup> tile: array<u32, 64>;
var<workgroup> rows: array<vec3<f32>, 4>;
var<workgroup> flag: u32;
fn reversed(l: u32) -> u32 { let p = &tile; return (*p)[63u - l]; }
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) l: u32) {
    let before = tile[l];
    tile[l] = x[l];
    if (l < 4u) { rows[l] = vec3(f32(l), f32(l) * 10.0, 0.5); rows[l].z += 1.0; }
    if (l == 7u) { flag = 1000u; }
    workgroupBarrier();
    let base = workgroupUniformLoad(&flag);
    y[l] = reversed(l) + u32(rows[(l + 1u) % 4u].y + rows[l % 4u].z) + before + base;
}",
            &(0..64).collect::<Vec<u32>>(),
            (0..64).map(|l| 63 - l + 10 * ((l + 1) % 4) + 1 + 1000).collect(),
        ),
        kernel(
            "barriers in loops",
            "var<workgroup> sums: array<u32, 32>;
@compute @workgroup_size(32) fn main(@builtin(local_invocation_index) l: u32) {
    sums[l] = x[l];
    workgroupBarrier();
    for (var s = 16u; s > 0u; s >>= 1u) {
        if (l < s) { sums[l] += sums[l + s]; }
        workgroupBarrier();
    }
    y[l] = sums[0];
    storageBarrier();
    if (l > 0u) { y[l] += y[0] & 1u; }
}",
            &(1..33).collect::<Vec<u32>>(),
            vec![528; 32],
        ),
    ]
}

fn layouts() -> Vec<Case> {
    let uniform = "struct Inner { a: vec2<f32>, b: f32 }
struct P { n: u32, v: vec3<f32>, s: f32, m: mat3x3<f32>, list: array<vec4<f32>, 2>, inner: Inner, last: f32 }
@group(0) @binding(0) var<uniform> p: P;
";
    let mut params = [POISON; 36];
    let mut set = |at: usize, values: &[f32]| {
        for (i, value) in values.iter().enumerate() {
            params[at + i] = f(*value);
        }
    };
    set(4, &[1.0, 2.0, 3.0, 4.0]); // v at byte 16, s at 28
    set(8, &[1.0, 2.0, 3.0]); // columns of m 16 bytes apart from byte 32
    set(12, &[4.0, 5.0, 6.0]);
    set(16, &[7.0, 8.0, 9.0]);
    set(20, &[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]); // list at byte 80
    set(28, &[11.0, 12.0, 13.0]); // inner at byte 112
    set(32, &[14.0]); // last behind inner, whose size is 16
    params[0] = 3;
    let mut block = kernel(
        "layout of a uniform block",
        &format!(
            "{uniform}@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
    let q = p;
    var all = array<f32, 8>(p.v.z, p.s, p.m[1].y, q.m[2].z, p.list[x[0]].z, q.inner.b, p.inner.a.y, p.last);
    y[l] = bitcast<u32>(all[l] + f32(p.n) + (p.m * p.v).x);
}}"
        ),
        &[1],
        [3.0, 4.0, 5.0, 9.0, 6.5, 13.0, 12.0, 14.0].iter().map(|v| f(v + 3.0 + 30.0)).collect(),
    );
    block.params = params.to_vec();
    vec![
        block,
        whole(
            "layout of storage: vectors of three, a runtime-sized tail",
            "struct Item { v: vec3<f32>, k: u32, w: vec3<f32> }
struct List { count: u32, items: array<Item> }
@group(0) @binding(1) var<storage, read> x: List;
@group(0) @binding(2) var<storage, read_write> y: array<vec3<f32>>;
@compute @workgroup_size(2) fn main(@builtin(local_invocation_index) l: u32) {
    let item = x.items[l];
    y[l] = item.v + x.items[1u - l].w * f32(item.k);
    y[l + 2u] = vec3(f32(arrayLength(&x.items)), f32(arrayLength(&y)), f32(x.count));
    y[l + 2u].y += 0.5;
}",
            &[
                &[9, 0, 0, 0][..],
                &[f(1.0), f(2.0), f(3.0), 2, f(4.0), f(5.0), f(6.0), 0],
                &[f(10.0), f(20.0), f(30.0), 3, f(40.0), f(50.0), f(60.0), 0],
            ]
            .concat(),
            [
                [f(81.0), f(102.0), f(123.0), POISON],
                [f(22.0), f(35.0), f(48.0), POISON],
                [f(2.0), f(4.5), f(9.0), POISON],
                [f(2.0), f(4.5), f(9.0), POISON],
            ]
            .concat(),
        ),
        whole(
            "layout of storage: nested arrays and matrices",
            "struct Cell { m: mat2x3<f32>, t: array<array<f32, 3>, 2> }
@group(0) @binding(1) var<storage, read> x: array<Cell, 2>;
@group(0) @binding(2) var<storage, read_write> y: array<mat3x2<f32>>;
@compute @workgroup_size(1) fn main() {
    y[0] = transpose(x[1].m);
    y[0][1] = vec2(x[0].t[1][2], x[1].t[0][1]);
}",
            &(0..32).map(|n| f(n as f32)).collect::<Vec<_>>(),
            [16.0, 20.0, 13.0, 25.0, 18.0, 22.0].iter().map(|v| f(*v)).collect(),
        ),
    ]
}

fn atomics() -> Vec<Case> {
    vec![
        whole(
            "atomics in storage",
            "@group(0) @binding(1) var<storage, read> x: array<u32>;
struct Y { count: atomic<u32>, low: atomic<i32>, high: atomic<i32>, and: atomic<u32>, or: atomic<u32>,
    xor: atomic<u32>, sub: atomic<u32>, last: atomic<u32>, swapped: atomic<u32>, order: array<atomic<u32>, 4> }
@group(0) @binding(2) var<storage, read_write> y: Y;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) l: u32) {
    if (l == 0u) {
        atomicStore(&y.count, 0u); atomicStore(&y.low, 5); atomicStore(&y.high, -5);
        atomicStore(&y.and, 0xffu); atomicStore(&y.or, 0u); atomicStore(&y.xor, 1u);
        atomicStore(&y.sub, 1000u); atomicStore(&y.last, 3u); atomicStore(&y.swapped, 0u);
        for (var i = 0u; i < 4u; i++) { atomicStore(&y.order[i], 0u); }
    }
    storageBarrier();
    let i = i32(x[l]) - 32;
    atomicAdd(&y.count, 2u);
    atomicMin(&y.low, i); atomicMax(&y.high, i);
    atomicAnd(&y.and, 0xfeu - (l & 1u) * 2u); atomicOr(&y.or, 1u << (l & 31u)); atomicXor(&y.xor, l);
    atomicSub(&y.sub, 1u);
    atomicAdd(&y.order[l % 4u], l);
    if (l == 5u) { atomicStore(&y.swapped, atomicExchange(&y.last, 44u) + 10u); }
    storageBarrier();
    if (l == 9u) {
        let hit = atomicCompareExchangeWeak(&y.last, 44u, 55u);
        let miss = atomicCompareExchangeWeak(&y.last, 44u, 66u);
        if (hit.exchanged && hit.old_value == 44u && !miss.exchanged && miss.old_value == 55u) {
            atomicAdd(&y.last, atomicLoad(&y.count));
        }
    }
}",
            &(0..64).collect::<Vec<u32>>(),
            vec![128, i(-32), 31, 0xfc, u32::MAX, 1, 936, 55 + 128, 13, 480, 496, 512, 528],
        ),
        kernel(
            "atomics in workgroup memory",
            "var<workgroup> bins: array<atomic<u32>, 8>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) l: u32) {
    atomicAdd(&bins[x[l] % 8u], x[l]);
    workgroupBarrier();
    if (l < 8u) { y[l] = atomicLoad(&bins[l]); }
}",
            &(0..64).collect::<Vec<u32>>(),
            (0..8).map(|bin| (0..64).filter(|v| v % 8 == bin).sum()).collect(),
        ),
    ]
}

fn grids() -> Vec<Case> {
    let (size, groups) = ([4, 2, 3], [2, 3, 2]);
    let mut expected = Vec::new();
    for gz in 0..groups[2] {
        for gy in 0..groups[1] {
            for gx in 0..groups[0] {
                for z in 0..size[2] {
                    for y in 0..size[1] {
                        for x in 0..size[0] {
                            let global = [gx * size[0] + x, gy * size[1] + y, gz * size[2] + z];
                            let local = (z * size[1] + y) * size[0] + x;
                            expected.push(
                                global[0]
                                    + 16 * global[1]
                                    + 256 * global[2]
                                    + 4096 * local
                                    + (gx + 8 * gy + 64 * gz) * 131_072
                                    + (groups[0] + groups[1] * groups[2]) * 67_108_864,
                            );
                        }
                    }
                }
            }
        }
    }
    let mut case = kernel(
        "numbers of threads and workgroups",
        "struct Ids { @builtin(workgroup_id) w: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32> }
@compute @workgroup_size(4, 2, 3)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(local_invocation_index) i: u32, ids: Ids) {
    let at = (ids.w.z * ids.n.y + ids.w.y) * ids.n.x + ids.w.x;
    let index = (ids.l.z * 2u + ids.l.y) * 4u + ids.l.x;
    let groups = ids.n.x + ids.n.y * ids.n.z;
    y[at * 24u + i] = x[0] * (g.x + 16u * g.y + 256u * g.z) + 4096u * index
        + (ids.w.x + 8u * ids.w.y + 64u * ids.w.z) * 131072u + groups * 67108864u;
}",
        &[1],
        expected,
    );
    case.groups = groups;
    vec![case]
}

fn halves() -> Vec<Case> {
    let half = |value: f32| u32::from(half::f16::from_f32(value).to_bits());
    let pair = |a: f32, b: f32| half(a) | half(b) << 16;
    let mut case = whole(
        "halves",
        "enable f16;
struct H { a: f16, v: vec3<f16>, b: vec2<f16>, list: array<f16, 2> }
@group(0) @binding(1) var<storage, read> x: array<H>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f16>>;
@compute @workgroup_size(1) fn main() {
    let h = x[0];
    var q = x[1];
    y[0] = vec4(h.a + h.v.x, h.v.y * h.v.z, h.b.x / h.b.y, -h.list[1]);
    y[1] = vec4(f16(f32(h.a) + 0.1), f16(3u), select(h.a, 2.0h, h.b.x > h.b.y), sqrt(h.b.x));
    q.v.y = 7.0h; q.list[0] += q.list[1]; q.b = q.b * 2.0h;
    y[2] = vec4(q.v.y, q.list[0], q.b);
    y[3] = vec4(fma(h.v, vec3(2.0h), vec3(h.a)), dot(h.b, h.b));
    y[3].x += 1.0h;
}",
        &[
            // a at byte 0, v at 8, b at 16, list at 20; 24 bytes.
            pair(1.0, 9.0),
            0,
            pair(2.0, 3.0),
            pair(4.0, 9.0),
            pair(9.0, 8.0),
            pair(5.0, 6.0),
            pair(0.5, 9.0),
            0,
            pair(1.5, 2.5),
            pair(3.5, 9.0),
            pair(4.5, 5.5),
            pair(6.5, 7.5),
        ],
        vec![
            pair(3.0, 12.0),
            pair(1.125, -6.0),
            pair(1.1, 3.0),
            pair(2.0, 3.0),
            pair(7.0, 14.0),
            pair(9.0, 11.0),
            pair(6.0, 7.0),
            pair(9.0, 145.0),
        ],
    );
    case.needs = Needs::Halves;
    let rounding = kernel_with_f16();
    vec![case, rounding]
}

/// f16 sums are rounded to f16 at every step.
fn kernel_with_f16() -> Case {
    let mut case = whole(
        "halves are rounded",
        "enable f16;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() {
    let a = f16(x[0]);
    y[0] = u32(a + 1.0h);
    let b = f16(x[1]); y[1] = u32((a + b) + b);
    y[2] = u32((vec2(a) + vec2(1.0h, 3.0h)).y);
}",
        &[2048, 1],
        vec![2048, 2048, 2052],
    );
    case.needs = Needs::Halves;
    case
}

/// Subgroups of any size check themselves against the values of every lane. Few operations per
/// kernel: through workgroup memory, all sums in one kernel take PoCL 95 s to compile.
fn subgroups() -> Vec<Case> {
    let check = |name: &str, lanes: u32, body: &str| {
        let wgsl = format!(
            "struct Place {{ @builtin(local_invocation_index) l: u32, @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32 }}
var<workgroup> all: array<u32, {lanes}>;
fn total(v: u32) -> u32 {{ return subgroupAdd(v); }}
@compute @workgroup_size({lanes}) fn main(p: Place) {{
    let v = x[p.l];
    all[p.l] = v;
    workgroupBarrier();
    let first = p.l - p.lane;
    let count = min(p.size, {lanes}u - first);
    var sum = 0u; var product = 1u; var low = 0xffffffffu; var high = 0u; var before = 0u; var ands = 0xffffffffu;
    var times = 1u; var xors = 0u; var ors = 0u;
    for (var i = 0u; i < count; i++) {{
        let other = all[first + i];
        if (i < p.lane) {{ before += other; times *= other; }}
        sum += other; product *= other; low = min(low, other); high = max(high, other);
        ands &= other; ors |= other; xors ^= other;
    }}
    var good = true;
{body}
    y[p.l] = select(0u, 1u, good);
}}"
        );
        let x = (0..lanes).map(|l| (l * 7 + 3) % 19 + 1).collect::<Vec<_>>();
        Case { needs: Needs::Subgroups, ..kernel(name, &wgsl, &x, vec![1; lanes as usize]) }
    };
    let sums = [
        "    good &= total(v) == sum && subgroupMul(v) == product && subgroupMin(v) == low && subgroupMax(v) == high;",
        "    good &= subgroupAnd(v) == ands && subgroupOr(v) == ors && subgroupXor(v) == xors;
    good &= subgroupAdd(-i32(v)) == -i32(sum) && subgroupMax(-i32(v)) == -i32(low);",
        "    let added = subgroupExclusiveAdd(v) == before && subgroupInclusiveAdd(v) == before + v;
    good &= added && subgroupExclusiveMul(v) == times && subgroupInclusiveMul(v) == times * v;",
        "    good &= distance(subgroupAdd(vec3(f32(v), 1.0, -f32(v))), vec3(f32(sum), f32(count), -f32(sum))) == 0.0;",
    ];
    let moves = "    good &= subgroupBroadcast(v, 2u) == all[first + 2u] && subgroupBroadcastFirst(v) == all[first];
    good &= subgroupShuffleXor(v, 1u) == all[first + (p.lane ^ 1u)];
    good &= subgroupShuffle(v, (p.lane + 1u) % count) == all[first + (p.lane + 1u) % count];
    let down = subgroupShuffleDown(v, 1u);
    good &= p.lane + 1u >= count || down == all[p.l + 1u];
    let up = subgroupShuffleUp(v, 2u);
    good &= p.lane < 2u || up == all[p.l - 2u];
    good &= quadSwapX(v) == all[first + (p.lane ^ 1u)] && quadSwapY(v) == all[first + (p.lane ^ 2u)];
    good &= quadSwapDiagonal(v) == all[first + (p.lane ^ 3u)];
    good &= quadBroadcast(v, 1u) == all[first + (p.lane & ~3u) + 1u];
    let pair = subgroupShuffleXor(vec2(v, p.l), 2u);
    good &= pair.x == all[first + (p.lane ^ 2u)] && pair.y == first + (p.lane ^ 2u);";
    let votes = "    good &= subgroupAll(v > 0u) && !subgroupAll(p.lane != 1u) && subgroupAny(p.lane == 1u) && !subgroupAny(v == 0u);
    let ballot = subgroupBallot(p.lane % 2u == 1u);
    let whole = subgroupBallot();
    var bits = 0u; var ones = 0u;
    for (var i = 0u; i < count; i++) {
        bits += (ballot[i / 32u] >> (i % 32u)) & 1u;
        ones += (whole[i / 32u] >> (i % 32u)) & 1u;
    }
    good &= bits == count / 2u && ones == count && (ballot.x & 3u) == 2u;";
    let sums = sums.iter().zip(["words", "bits", "scans", "vectors"]).flat_map(|(body, of)| {
        [64, 8].map(|lanes| check(&format!("subgroups: sums of {lanes}, {of}"), lanes, body))
    });
    sums.chain([
        check("subgroups: values of other lanes", 64, moves),
        check("subgroups: values of other lanes of a small workgroup", 8, moves),
        check("subgroups: votes", 64, votes),
        check("subgroups: votes of a small workgroup", 16, votes),
    ])
    .collect()
}
