// matvec_prequant_q4_k+headers+subgroup(K=2048,SUB=32,TEAMS=8,UNROLL=2,WG=256)
// matvec_prequant_*: int8 GEMV: the product of matvec_* with quantised rows of x (kin to MMVQ in
// llama.cpp). w [n, k] packed; x as quantize_activations or a fused quant epilogue writes it; y [m, n], few
// rows i.
// Work split: one workgroup per TEAMS * ROWS rows of w and M rows of x, ROWS per team of threads. A
// team's threads take units of the k columns in turn (coalesced); their sums are reduced at the
// end.
// Why: a packed int8 dot product takes one instruction, floats a conversion and a product per
// weight. x is quantised once for all workgroups.
// headers: Q4_K and Q5_K, K columns in planes; see prequant_headers. eights (Q6_Kx8), trits (TQ2_0),
// blocks (Q4_0x8, Q8_0x8), several (eight rows of x): other inner loops, each in its prequant_* file.
// scaled: fused RMS norm: sums of squares of 32 columns each follow the factors of x, and their
// root mean square scales the products.
// quant_epilogue (of a fusion): the workgroup quantises its 32 evaluations for the next product.
// Weights as Q4_K: w = d * s * q - dmin * m in blocks of 256 (144 bytes): f16 d and dmin, 12 bytes
// of 6-bit scales s and minima m of 8 sub-blocks, then 128 bytes; byte 32 g + j holds weight j of
// sub-block 2 g in its low and of 2 g + 1 in its high nibble. The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 of these bytes, half of two sub-blocks; eight neighbouring threads read
// one block and share its header. Why: blocks are aligned to 16 bytes, so each load is a vec4.
// f16 to f32: the two f16 of a 32-bit word, exactly.
// Why: f16 types are optional, and one software driver returns 0 for the second value of
// unpack2x16float, so each is moved to the first.
fn f16_low(word: u32) -> f32 {
    return unpack2x16float(word & 0xffffu).x;
}

fn f16_high(word: u32) -> f32 {
    return unpack2x16float(word >> 16u).x;
}
// Scales and minima of sub-blocks 2 g and 2 g + 1 of a Q4_K or Q5_K block, from its first 16 bytes:
// f16 d and dmin, then 8 scales and 8 minima of 6 bits. Returns d * s twice, then dmin * m twice.
// Needs half.
fn pair_scales(header: vec4<u32>, g: u32) -> vec4<f32> {
    let bytes = header.yzw >> vec3((g & 1u) * 16u);
    // Sub-blocks 0 to 3 have whole bytes; 4 to 7 a nibble and the two bits that those leave unused.
    let low = bytes.xy & vec2(0x3f3fu);
    let high = (vec2(bytes.z, bytes.z >> 4u) & vec2(0x0f0fu)) | ((bytes.xy >> vec2(2u)) & vec2(0x3030u));
    let pair = select(low, high, g > 1u);
    let values = vec4<f32>(vec4(pair.x & 0xffu, pair.x >> 8u, pair.y & 0xffu, pair.y >> 8u));
    let d = f16_low(header.x);
    let dmin = f16_high(header.x);
    return values * vec4(d, d, dmin, dmin);
}
// The low nibbles of a word's four bytes, as floats.
// Why conversions: inserting nibbles into the mantissa of 2^23 and subtracting was 10% slower on an
// H200, though conversions run there at a quarter to an eighth of the rate of additions.
fn nibbles(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu));
}

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec4<u32>,
    // Scales of the two sub-blocks, then minima.
    scales: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

fn decode(word: u32, scale: f32, minimum: f32) -> vec4<f32> {
    return nibbles(word) * scale - vec4(minimum);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let block = (start + min(c, k - 4u) / 256u) * 9u;
    let g = (c & 255u) >> 6u;
    let scales = pair_scales(weight_word(block), g);
    let word = weight_word(block + 1u + g * 2u + ((c & 16u) >> 4u))[(c & 15u) >> 2u];
    if ((c & 32u) == 0u) {
        return decode(word, scales.x, scales.z);
    }
    return decode(word >> 4u, scales.y, scales.w);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let block = (start + (unit >> 3u)) * 9u;
    let l = unit & 7u;
    return Unit(weight_word(block + 1u + l), pair_scales(weight_word(block), l >> 1u));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A block has 256 columns, a group 64, a half 16; the upper nibbles are 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let upper = part > 3u;
    let s = unit.scales;
    return decode(unit.q[part & 3u] >> (part & 4u), select(s.x, s.y, upper), select(s.z, s.w, upper));
}

const GROUPS: u32 = 2u;
const RUN: u32 = 4u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return (unit.q[part & 3u] >> (part & 4u)) & 0x0f0f0f0fu;
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -unit.scales[2u + group];
}

// For prequant_headers: vec4s per block, the first of its codes, and whether fifth bits precede them;
// a word of codes of even and of odd sub-blocks as signed bytes, and the value of one code step of
// the latter.
const BLOCK_WORDS: u32 = 9u;
const PREQUANT_AT: u32 = 1u;
const FIFTHS: bool = false;
const UPPER_UNIT: f32 = 1.0;

fn lower_codes(word: u32, fifths: u32) -> u32 {
    return word & 0x0f0f0f0fu;
}

fn upper_codes(word: u32, fifths: u32) -> u32 {
    return (word & 0xf0f0f0f0u) ^ 0x80808080u;
}

const WG: u32 = 256u;
const ROWS: u32 = 4;
const M: u32 = 1;
const TEAMS: u32 = 8u;
// The smallest subgroup.
const SUB: u32 = 32u;
// Columns, for kernels that need them, and unrolled turns over them: a divisor of the number of
// turns; for trits any number.
const K: u32 = 2048u;
const UNROLL: u32 = 2u;

const OUTPUTS: u32 = ROWS * M;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = TEAMS * ROWS;
const TEAM: u32 = WG / TEAMS;
// Loads of a unit's codes of x, and groups that one load serves.
const READS: u32 = PARTS / CODE_LEN;
const GROUPS_OF_READ: u32 = CODE_LEN / RUN;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    // Where the factors of row 0 begin.
    x_factors: u32,
    y_offset: u32,
    y_stride: u32,
    eps: f32,
// Parameters of a kernel's fusion: none. With a fusion, generated text (codegen) replaces this
// file.
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read> x: array<CodeWords>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

// Scale of quantised products: with a fused norm, from sums of squares of each 32 columns, which
// follow x's scales and scaled sums; else 1. Needs OUTPUTS, M and TEAM.
// Number of sums per team of matvec_prequant_* or matvec_mma_* for OUTPUTS products, and the scale
// of row i of x: with a fused norm its inverse root mean square, from sums that follow the
// products; else 1. Needs M.
const SUMS: u32 = OUTPUTS;

fn scale(i: u32, place: Place) -> f32 {
    return 1.0;
}

// Product r of row i of x, from any team.
fn product(r: u32, i: u32, place: Place) -> f32 {
    let o = r / ROWS * SUMS + r % ROWS * M + i;
    return total(o, place) * scale(i, place);
}

// Insertion point of epilogue fusion in products with weights.
// The rows of w of a workgroup, and where its products go: TASK_ROWS rows in turn, stored as
// y[i, row]. Needs TASK_ROWS and OWN_READS.
// With a fused epilogue, generated text replaces this file. An evaluation then uses up to ANCHORS
// products, and the workgroup's product r belongs to evaluation r % evaluations(task).
const ATTACHED: u32 = 0;

const ANCHORS: u32 = 1u;

@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<f32>;

struct Task {
    first: u32,
}

fn task_of(group: u32) -> Task {
    return Task(group * TASK_ROWS);
}

fn exists(task: Task) -> bool {
    return task.first < params.n;
}

fn evaluations(task: Task) -> u32 {
    return TASK_ROWS;
}

// The row of w of product r. Products past the end repeat the last row and are not stored.
fn row_of(task: Task, r: u32) -> u32 {
    return min(task.first + r, params.n - 1u);
}

// Stores evaluation e of the workgroup for row i of x, if they exist.
fn store(task: Task, e: u32, i: u32, product: f32, second: f32) {
    let row = task.first + e;
    if (row < params.n && i < params.m) {
        y[params.y_offset + i * params.y_stride + row] = product;
    }
}
// Reduction of a GEMV: total(o) = sum over a team's threads of the values that they put for o. A team
// has SUMS sums: team t has o = t * SUMS and up. Needs WG, TEAMS (equal shares of the threads), SUMS and
// SUB. Between put and reduce_sums callers place a barrier; all threads call reduce_sums before total.
// Work split: with subgroups, each adds its values first, and total adds the subgroups' sums; else
// a tree in workgroup memory.
// Why: one barrier with subgroups of any size from SUB; the tree reduces all sums in each step.
const_assert WG >= 4u && WG <= 1024u && (WG & (WG - 1u)) == 0u;
const_assert TEAMS >= 1u && (TEAMS & (TEAMS - 1u)) == 0u && WG / TEAMS >= 4u;

struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups have at least 4 lanes and, if there are several teams, do not span two of them.
const MAX_SUBGROUPS: u32 = WG / SUB;
var<workgroup> partial: array<f32, MAX_SUBGROUPS * SUMS>;

fn put(o: u32, value: f32, place: Place) {
    let sum = subgroupAdd(value);
    if (place.lane == 0u) {
        partial[place.subgroup * SUMS + o] = sum;
    }
}

fn reduce_sums(place: Place) {
}

fn total(o: u32, place: Place) -> f32 {
    let each = min(place.subgroups, MAX_SUBGROUPS) / TEAMS;
    let first = o / SUMS * each;
    var sum = 0.0;
    for (var s = 0u; s < each; s++) {
        sum += partial[(first + s) * SUMS + o % SUMS];
    }
    return sum;
}
// Epilogue operands of evaluations that are stored many at a time: none to fetch. Needs
// fusion_rows.
// With a fused epilogue, the generated text of fusion_rows holds these functions.
struct Fetched {
    nothing: u32,
}

fn fetch(task: Task, e: u32, i: u32) -> Fetched {
    return Fetched();
}

fn finish(task: Task, e: u32, i: u32, product: f32, second: f32, fetched: Fetched) {
    store(task, e, i, product, second);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let task = task_of(wid.y * grid.x + wid.x);
    let first_i = wid.z * M;
    if (!exists(task) || first_i >= params.m) {
        return;
    }
    // Unrolled: a dynamically indexed array may be placed in slow memory. Rows past the end repeat
    // the last one and are not stored.
    let first_r = place.lid / TEAM * ROWS;
    let start0 = row_start(row_of(task, first_r + 0u), params.k);
    let start1 = row_start(row_of(task, first_r + 1u), params.k);
    let start2 = row_start(row_of(task, first_r + 2u), params.k);
    let start3 = row_start(row_of(task, first_r + 3u), params.k);
// First part of main of a matvec_prequant_*: loads the weights of each thread's first turn before
// anything else; for prequant_units those of its only turn, for prequant_trits those of UNROLL turns.
// Why: weights are constant, so these loads overlap with the previous launch, which still computes
// x. If there is no single first turn, compilers batch more of the loads themselves.
// Start of matvec_prequant_* for rows of x in planes and blocks of 256 columns: a step is four blocks
// of each of a team's four rows of w. Part of main.
const_assert ROWS == 4u && SUB == 32u && K % 256u == 0u;
const SUBGROUPS: u32 = TEAM / 32u;
const BLOCKS: u32 = K / 256u;
const STEPS: u32 = (K + 1023u) / 1024u;
const TURNS: u32 = (STEPS + SUBGROUPS - 1u) / SUBGROUPS;
// Masks buffer indices, which are below this (in 16-byte words): compilers see that an addition
// cannot carry and fold it into the load's address.
const NEAR: u32 = 0x0fffffffu;
// Whether every lane has work in every turn.
const WHOLE: bool = K % 1024u == 0u && STEPS % SUBGROUPS == 0u;
const_assert TURNS % UNROLL == 0u;
// Lanes that hold parts of a row's sum, and the number of halvings after the first two.
const ACROSS: u32 = 32u;
const HALVINGS: u32 = 3u;
let lane = place.lane;
let own_subgroup = place.lid % TEAM / 32u;
let own_block = lane >> 3u;
let first_block = select(min(own_subgroup * 4u + own_block, BLOCKS - 1u), own_subgroup * 4u + own_block, WHOLE);
const_assert M == 1u;
let own_word = PREQUANT_AT + (lane & 7u);
// Bit index for the lower of its two sub-blocks.
let bit = lane & 6u;
let header_row = lane >> 3u;
let header_block = (lane >> 1u) & 3u;
let upper = lane & 1u;
var header_start = start0;
if (header_row == 0u) {
    header_start = start0;
}
if (header_row == 1u) {
    header_start = start1;
}
if (header_row == 2u) {
    header_start = start2;
}
if (header_row == 3u) {
    header_start = start3;
}
let first_header = select(min(own_subgroup * 4u + header_block, BLOCKS - 1u), own_subgroup * 4u + header_block, WHOLE);
let at0 = ((start0 + first_block) * BLOCK_WORDS + own_word) & NEAR;
let fifths_at0 = ((start0 + first_block) * BLOCK_WORDS + 1u + (lane & 1u)) & NEAR;
var next0 = w[at0];
var next_fifths0 = vec4<u32>();
if (FIFTHS) {
    next_fifths0 = w[fifths_at0];
}
let at1 = ((start1 + first_block) * BLOCK_WORDS + own_word) & NEAR;
let fifths_at1 = ((start1 + first_block) * BLOCK_WORDS + 1u + (lane & 1u)) & NEAR;
var next1 = w[at1];
var next_fifths1 = vec4<u32>();
if (FIFTHS) {
    next_fifths1 = w[fifths_at1];
}
let at2 = ((start2 + first_block) * BLOCK_WORDS + own_word) & NEAR;
let fifths_at2 = ((start2 + first_block) * BLOCK_WORDS + 1u + (lane & 1u)) & NEAR;
var next2 = w[at2];
var next_fifths2 = vec4<u32>();
if (FIFTHS) {
    next_fifths2 = w[fifths_at2];
}
let at3 = ((start3 + first_block) * BLOCK_WORDS + own_word) & NEAR;
let fifths_at3 = ((start3 + first_block) * BLOCK_WORDS + 1u + (lane & 1u)) & NEAR;
var next3 = w[at3];
var next_fifths3 = vec4<u32>();
if (FIFTHS) {
    next_fifths3 = w[fifths_at3];
}
let header_at = ((header_start + first_header) * BLOCK_WORDS) & NEAR;
var next_header = w[header_at];
    // Epilogue operands of a thread's first products are loaded early.
    let each = evaluations(task);
    var fetched = Fetched();
    if (place.lid < each * M) {
        fetched = fetch(task, place.lid % each, first_i + place.lid / each);
    }
    var sum0_0 = 0.0;
    var sum1_0 = 0.0;
    var sum2_0 = 0.0;
    var sum3_0 = 0.0;
    let row0 = min(first_i + 0u, params.m - 1u) * params.x_stride;
    let codes0 = (params.x_offset + row0) / CODE_LEN;
    let factors0 = (params.x_factors + row0) / CODE_LEN;
    let sums0 = factors0 + (params.k + 127u) / 128u * (4u / CODE_LEN);
// Selects the inner loop of a matvec_prequant_*, which also puts its sums. Part of main.
// Inner loop of matvec_prequant_q4_k and q5_k for 32-lane subgroups: one row of x in planes
// (prequant_layout), four rows of w per team. Part of main, after prequant_begin.
// Work split: a step is four blocks of four rows; a subgroup takes every SUBGROUPS-th step. A lane
// multiplies 16 bytes of each row, and decodes four scales and four minima of one of the step's 16
// headers, two lanes per header. Minima are multiplied with the sums of codes of their columns;
// scales are shuffled to the lanes that need them. The next step's weights are prefetched; at the
// end lanes exchange sums.
// Why: decoding the header of each unit costs more than the products, and waiting for each step
// idles the memory. Accumulators start at the bits of 1.5 * 2^23, which avoids conversions. The
// high nibble of a Q4_K byte is used as the signed byte 16 * w - 128, one operation per four.
let low_at = (codes0 + own_subgroup * 64u + lane) & NEAR;
let along_at = (codes0 + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
let part_at = (factors0 + (params.k + 127u) / 128u + first_header * 2u + upper) & NEAR;
var minima = 0.0;
for (var base = 0u; base < TURNS; base += UNROLL) {
{
    let turn = base + 0u;
    let wanted = turn * SUBGROUPS + own_subgroup;
    // Relative to the subgroup's first step.
    let further = select(min(wanted, STEPS - 1u) - own_subgroup, turn * SUBGROUPS, WHOLE);
    let low = x[low_at + further * 64u];
    let high = x[low_at + further * 64u + 32u];
    let along = x[along_at + further * 32u];
    let block = select(min(wanted * 4u + header_block, BLOCKS - 1u) - first_header, further * 4u, WHOLE);
    let part = bitcast<vec4<f32>>(x[part_at + block * 2u]);

    let q0 = next0;
    let fifths0 = next_fifths0;
    let q1 = next1;
    let fifths1 = next_fifths1;
    let q2 = next2;
    let fifths2 = next_fifths2;
    let q3 = next3;
    let fifths3 = next_fifths3;
    let header = next_header;
    let lower_scales = header.y & 0x3f3f3f3fu;
    let upper_scales = (header.w & 0x0f0f0f0fu) | ((header.y >> 2u) & 0x30303030u);
    let lower_minima = header.z & 0x3f3f3f3fu;
    let upper_minima = ((header.w >> 4u) & 0x0f0f0f0fu) | ((header.z >> 2u) & 0x30303030u);
    let scales = select(lower_scales, upper_scales, upper == 1u);
    let mins = vec4<f32>(unpack4xU8(select(lower_minima, upper_minima, upper == 1u)));
    let d = f16_low(header.x);
    let minimum = f16_low(header.x >> 16u) * dot(mins, part);
    minima += select(0.0, minimum, WHOLE || wanted * 4u + header_block < BLOCKS);
    // After the last step, reloads the last: compilers sink a conditional load to its use.
    let next_turn = min(turn + 1u, TURNS - 1u);
    let to = next_turn * SUBGROUPS + own_subgroup;
    let whole = next_turn * SUBGROUPS * 4u * BLOCK_WORDS;
    let blocks = select((min(to * 4u + own_block, BLOCKS - 1u) - first_block) * BLOCK_WORDS, whole, WHOLE);
    let headers = select((min(to * 4u + header_block, BLOCKS - 1u) - first_header) * BLOCK_WORDS, whole, WHOLE);
    next0 = w[at0 + blocks];
    if (FIFTHS) {
        next_fifths0 = w[fifths_at0 + blocks];
    }
    next1 = w[at1 + blocks];
    if (FIFTHS) {
        next_fifths1 = w[fifths_at1 + blocks];
    }
    next2 = w[at2 + blocks];
    if (FIFTHS) {
        next_fifths2 = w[fifths_at2 + blocks];
    }
    next3 = w[at3 + blocks];
    if (FIFTHS) {
        next_fifths3 = w[fifths_at3 + blocks];
    }
    next_header = w[header_at + headers];
    let exists = WHOLE || wanted * 4u + own_block < BLOCKS;
    let by_low = select(0.0, bitcast<f32>(along.x), exists);
    let by_high = select(0.0, UPPER_UNIT * bitcast<f32>(along.y), exists);
    let begin = select(0x4b400000, bitcast<i32>(along.z), exists && !FIFTHS);
    {
        let holder = (lane >> 2u) + 8u * 0u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q0[0], fifths0[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q0[0], fifths0[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q0[1], fifths0[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q0[1], fifths0[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q0[2], fifths0[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q0[2], fifths0[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q0[3], fifths0[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q0[3], fifths0[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum0_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 1u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q1[0], fifths1[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q1[0], fifths1[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q1[1], fifths1[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q1[1], fifths1[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q1[2], fifths1[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q1[2], fifths1[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q1[3], fifths1[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q1[3], fifths1[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum1_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 2u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q2[0], fifths2[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q2[0], fifths2[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q2[1], fifths2[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q2[1], fifths2[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q2[2], fifths2[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q2[2], fifths2[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q2[3], fifths2[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q2[3], fifths2[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum2_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 3u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q3[0], fifths3[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q3[0], fifths3[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q3[1], fifths3[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q3[1], fifths3[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q3[2], fifths3[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q3[2], fifths3[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q3[3], fifths3[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q3[3], fifths3[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum3_0 += by * (first + second);
    }
}
{
    let turn = base + 1u;
    let wanted = turn * SUBGROUPS + own_subgroup;
    // Relative to the subgroup's first step.
    let further = select(min(wanted, STEPS - 1u) - own_subgroup, turn * SUBGROUPS, WHOLE);
    let low = x[low_at + further * 64u];
    let high = x[low_at + further * 64u + 32u];
    let along = x[along_at + further * 32u];
    let block = select(min(wanted * 4u + header_block, BLOCKS - 1u) - first_header, further * 4u, WHOLE);
    let part = bitcast<vec4<f32>>(x[part_at + block * 2u]);

    let q0 = next0;
    let fifths0 = next_fifths0;
    let q1 = next1;
    let fifths1 = next_fifths1;
    let q2 = next2;
    let fifths2 = next_fifths2;
    let q3 = next3;
    let fifths3 = next_fifths3;
    let header = next_header;
    let lower_scales = header.y & 0x3f3f3f3fu;
    let upper_scales = (header.w & 0x0f0f0f0fu) | ((header.y >> 2u) & 0x30303030u);
    let lower_minima = header.z & 0x3f3f3f3fu;
    let upper_minima = ((header.w >> 4u) & 0x0f0f0f0fu) | ((header.z >> 2u) & 0x30303030u);
    let scales = select(lower_scales, upper_scales, upper == 1u);
    let mins = vec4<f32>(unpack4xU8(select(lower_minima, upper_minima, upper == 1u)));
    let d = f16_low(header.x);
    let minimum = f16_low(header.x >> 16u) * dot(mins, part);
    minima += select(0.0, minimum, WHOLE || wanted * 4u + header_block < BLOCKS);
    // After the last step, reloads the last: compilers sink a conditional load to its use.
    let next_turn = min(turn + 1u, TURNS - 1u);
    let to = next_turn * SUBGROUPS + own_subgroup;
    let whole = next_turn * SUBGROUPS * 4u * BLOCK_WORDS;
    let blocks = select((min(to * 4u + own_block, BLOCKS - 1u) - first_block) * BLOCK_WORDS, whole, WHOLE);
    let headers = select((min(to * 4u + header_block, BLOCKS - 1u) - first_header) * BLOCK_WORDS, whole, WHOLE);
    next0 = w[at0 + blocks];
    if (FIFTHS) {
        next_fifths0 = w[fifths_at0 + blocks];
    }
    next1 = w[at1 + blocks];
    if (FIFTHS) {
        next_fifths1 = w[fifths_at1 + blocks];
    }
    next2 = w[at2 + blocks];
    if (FIFTHS) {
        next_fifths2 = w[fifths_at2 + blocks];
    }
    next3 = w[at3 + blocks];
    if (FIFTHS) {
        next_fifths3 = w[fifths_at3 + blocks];
    }
    next_header = w[header_at + headers];
    let exists = WHOLE || wanted * 4u + own_block < BLOCKS;
    let by_low = select(0.0, bitcast<f32>(along.x), exists);
    let by_high = select(0.0, UPPER_UNIT * bitcast<f32>(along.y), exists);
    let begin = select(0x4b400000, bitcast<i32>(along.z), exists && !FIFTHS);
    {
        let holder = (lane >> 2u) + 8u * 0u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q0[0], fifths0[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q0[0], fifths0[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q0[1], fifths0[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q0[1], fifths0[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q0[2], fifths0[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q0[2], fifths0[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q0[3], fifths0[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q0[3], fifths0[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum0_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 1u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q1[0], fifths1[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q1[0], fifths1[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q1[1], fifths1[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q1[1], fifths1[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q1[2], fifths1[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q1[2], fifths1[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q1[3], fifths1[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q1[3], fifths1[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum1_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 2u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q2[0], fifths2[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q2[0], fifths2[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q2[1], fifths2[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q2[1], fifths2[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q2[2], fifths2[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q2[2], fifths2[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q2[3], fifths2[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q2[3], fifths2[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum2_0 += by * (first + second);
    }
    {
        let holder = (lane >> 2u) + 8u * 3u;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
        a += dot4I8Packed(lower_codes(q3[0], fifths3[0] >> bit), low[0]);
        b += dot4I8Packed(upper_codes(q3[0], fifths3[0] >> bit), high[0]);
        a += dot4I8Packed(lower_codes(q3[1], fifths3[1] >> bit), low[1]);
        b += dot4I8Packed(upper_codes(q3[1], fifths3[1] >> bit), high[1]);
        a += dot4I8Packed(lower_codes(q3[2], fifths3[2] >> bit), low[2]);
        b += dot4I8Packed(upper_codes(q3[2], fifths3[2] >> bit), high[2]);
        a += dot4I8Packed(lower_codes(q3[3], fifths3[3] >> bit), low[3]);
        b += dot4I8Packed(upper_codes(q3[3], fifths3[3] >> bit), high[3]);
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum3_0 += by * (first + second);
    }
}
}
sum0_0 -= select(0.0, minima, header_row == 0u);
sum1_0 -= select(0.0, minima, header_row == 1u);
sum2_0 -= select(0.0, minima, header_row == 2u);
sum3_0 -= select(0.0, minima, header_row == 3u);
// Reduces four rows' sums by lane exchange instead of four subgroup sums: of ACROSS lanes, lane
// r * ACROSS / 4 ends with row r. Part of main.
let far = (lane & (ACROSS / 2u)) != 0u;
let near = (lane & (ACROSS / 4u)) != 0u;
let even = select(sum0_0, sum2_0, far) + subgroupShuffleXor(select(sum2_0, sum0_0, far), ACROSS / 2u);
let odd = select(sum1_0, sum3_0, far) + subgroupShuffleXor(select(sum3_0, sum1_0, far), ACROSS / 2u);
var both = select(even, odd, near) + subgroupShuffleXor(select(odd, even, near), ACROSS / 4u);
both += subgroupShuffleXor(both, (ACROSS / 8u) >> 0u);
both += subgroupShuffleXor(both, (ACROSS / 8u) >> 1u);
both += subgroupShuffleXor(both, (ACROSS / 8u) >> 2u);
if (lane % (ACROSS / 4u) == 0u) {
    partial[place.subgroup * SUMS + lane / (ACROSS / 4u)] = both;
}
    workgroupBarrier();
    reduce_sums(place);
    for (var o = place.lid; o < each * M; o += WG) {
        let e = o % each;
        let i = o / each;
        if (o >= WG) {
            fetched = fetch(task, e, first_i + i);
        }
        var second = 0.0;
        if (ANCHORS == 2u) {
            second = product(min(e + each, TASK_ROWS - 1u), i, place);
        }
        finish(task, e, first_i + i, product(e, i, place), second, fetched);
    }
}
