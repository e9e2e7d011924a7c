//! Operator fusion into a catalogue kernel: prologue, epilogue and quant epilogue, as data.
//!
//! A matrix product, convolution or attention kernel is an *anchor*. Its fusion has these parts:
//! - `norm`: rows of `x` (after the prologue, if any) are RMS-normalised as they are read
//!   (`matvec_*`, `matvec_int8_*`, `quantize_activations` and `quantize_to_f16` only). Since
//!   `norm(x) . w = factor * sum of x * g * w`, where `g` is the norm's weight, the factor is
//!   computed along with the sum. `vec4` promises the same alignment for `g` as for `x`;
//! - `prologue`: a body applied to each element of `x` as it is read, over the index space [row,
//!   column]. [`Value::Anchor`]`(0)` is the element, which the last value replaces. For
//!   `matmul_batched` it applies to `a`, with row `batch * m + i`; for `conv2d` the row is
//!   `batch * in_c + channel` and the column is the pixel of that plane;
//! - `segments`: epilogues, applied to the anchor's results instead of its own store;
//! - `quant_epilogue`: fused activation quantisation: the only segment's output is also quantised
//!   for the next products: to int8 (`matvec_prequant_*`, `matvec_mma_*`, and the final
//!   kernel of decode attention) or to f16 (`split_k_reduce`, then one workgroup per row of at most
//!   `K` columns). Column c of row i is evaluation c of the segment; for attention, the columns are
//!   the elements of all heads in order.
//!
//! **Index spaces of segments**: three dimensions `(i, s0, s1)` with strides for each operand:
//! - `matvec_*`, `matvec_int8_*`, `matvec_prequant_*`, `matvec_mma_*`, `matmul_*`, `matmul_coop_*`,
//!   `split_k_reduce`: `i` is the row of `x`; `(s0, s1)` counts evaluations of the segment, each on
//!   `anchors` products: `Anchor(j)` is row
//!   `first_row + s0 * stride0 + s1 * stride1 + j * distance` of `w`. So a merged q, k and v
//!   product has three segments, gate and up are the two anchors of one segment, and a rotation has
//!   the two rows of its pair as anchors;
//! - `matmul_batched`, `matmul_batched_tiled`: (batch, row, column); `conv2d`: (batch * out
//!   channels, row, column), as plane and position; `attn_*`: (token, head, element of the head).
//!   There is one segment, with one anchor.
//!
//! **Parameters**, after the kernel's own: for `norm`: `eps` (f32 bits), `offset` of its weight;
//! for the prologue, the words of its operands over rank 2; for each segment of a product with a
//! weight: `first_row`, `size0`, `size1`, `stride0`, `stride1`, `distance`; then for each segment
//! the words of its operands over rank 3 (inputs, then outputs); for `quant_epilogue` the columns
//! of a row and the offset of the norm's weight, for f16 also the norm's `eps` and the number of
//! words before the factors. `Flat` addressing is not supported.
//!
//! **Bindings**: the kernel's own before its output (inputs and scratch); those that the fusion
//! reads, with one numbering for prologue, segments and the norm's weight; those that segments
//! write, in one numbering, replacing the kernel's output if there are segments; then the quantised
//! rows. For int8, each row is as `quantize_activations` writes it, with its values once per order;
//! with a norm, the sums of squares of each 32 columns follow, padded to a multiple of four words.
//! For f16, all rows and then their factors, as `quantize_to_f16` writes both. Segments may write
//! 16-bit elements, each atomically in its half of a word, but read none.

use serde::{Deserialize, Serialize};

use super::catalogue::{self, Entry};
use super::entry::plain_name;
use super::fused::{FusedExpr, Value};
use super::prequant::CodeOrder;
use warploom_core::base::{DType, Dim};

/// The prologue and epilogue fused into a catalogue kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelFusion {
    /// If rows of `x` are RMS-normalised, the index of the fused input with the norm's weight.
    pub norm: Option<u32>,
    /// Body applied to each element of `x`: rank 2, no outputs; its last value is the result.
    pub prologue: Option<FusedExpr>,
    /// Epilogues, applied to the kernel's results. If empty, the kernel stores them as usual.
    pub segments: Vec<Segment>,
    /// Quantisation of the only segment's output for the next products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quant_epilogue: Option<QuantEpilogue>,
}

/// Fused activation quantisation of a kernel's output for the next products.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuantEpilogue {
    /// Index of the segment's output that is quantised; its type is f32.
    pub output: u32,
    /// If an RMS norm precedes those products, the index of the fused input with the norm's weight.
    pub norm: Option<u32>,
    /// The operand layout that the products read.
    pub form: OperandLayout,
    /// Whether the f32 output is stored as well. If not, its buffer is bound but not written.
    pub kept: bool,
}

/// A quantised operand layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperandLayout {
    /// Int8 values, with a scale for each block.
    Codes {
        /// Orders of the values, each with its own copy of them.
        orders: Vec<CodeOrder>,
        /// How the 32 neighbouring threads of a block find their common scale.
        neighbours: Neighbours,
    },
    /// f16 values and row factors, computed by subgroups of at least 32 threads.
    Halves(F16Layout),
}

/// How 32 neighbouring threads that quantise a block together find its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// Through workgroup memory.
    Apart,
    /// By lane exchange; every subgroup has at least 32 threads.
    Lanes,
    /// By subgroup reductions; every subgroup has exactly 32 threads.
    Subgroup,
}

/// Layout and rounding of `quantize_to_f16`'s f16 output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct F16Layout {
    /// Whether values are first rounded to 8 bits.
    pub rounded: bool,
    /// Whether rows are contiguous, rather than in blocks of 32 columns.
    pub plain: bool,
}

/// The epilogue for one part of a kernel's results.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Number of results of the kernel that an evaluation uses: 1 or 2.
    pub anchors: u32,
    /// Body of the epilogue: rank 3, without reductions.
    pub body: FusedExpr,
}

/// Parameter words of a segment before those of its operands, for products with a weight matrix.
pub const SEGMENT_WORDS: u32 = 6;

/// Parameter words of a quant epilogue to int8: columns of a row, and offset of the norm's weight.
pub const QUANT_WORDS: u32 = 2;

/// Parameter words of a quant epilogue to f16: those of [`QUANT_WORDS`], the norm's `eps`, and the
/// number of words before the factors.
pub const F16_EPILOGUE_WORDS: u32 = 4;

/// Maximum number of code orders in a quant epilogue.
pub const MAX_ORDERS: usize = 2;

/// Maximum number of segments in a fusion.
pub const MAX_SEGMENTS: usize = 4;

impl KernelFusion {
    /// Returns the number of buffers that the fusion reads.
    pub fn reads(&self) -> u32 {
        let bodies = self.prologue.iter().chain(self.segments.iter().map(|s| &s.body));
        let gain = self.quant_epilogue.iter().filter_map(|epilogue| epilogue.norm);
        let norms = self.norm.into_iter().chain(gain).map(|n| n + 1);
        bodies.map(FusedExpr::reads).chain(norms).max().unwrap_or(0)
    }

    /// Returns the number of buffers that the fusion writes instead of the kernel's own output; 0
    /// if the kernel stores as usual.
    pub fn writes(&self) -> u32 {
        self.stored() + u32::from(self.quant_epilogue.is_some())
    }

    /// Returns the number of buffers that the segments write.
    pub fn stored(&self) -> u32 {
        self.segments.iter().map(|segment| segment.body.writes()).max().unwrap_or(0)
    }

    /// Returns the number of words that the fusion adds to the kernel's parameters. `rows` is
    /// whether the kernel multiplies by a weight matrix; each segment then also specifies its rows
    /// of that matrix.
    pub fn words(&self, rows: bool) -> u32 {
        let norm = if self.norm.is_some() { 2 } else { 0 };
        let prologue = self.prologue.as_ref().map_or(0, FusedExpr::operand_words);
        let each = if rows { SEGMENT_WORDS } else { 0 };
        let segments = self.segments.iter().map(|s| each + s.body.operand_words());
        let epilogue = self.quant_epilogue.as_ref().map_or(0, |epilogue| match epilogue.form {
            OperandLayout::Codes { .. } => QUANT_WORDS,
            OperandLayout::Halves(_) => F16_EPILOGUE_WORDS,
        });
        norm + prologue + segments.sum::<u32>() + epilogue
    }

    /// Returns the reason why the fusion is malformed, if it is.
    pub fn fault(&self) -> Option<String> {
        let bodies = self.prologue.iter().map(|body| (body, 2, 1));
        let segments = self.segments.iter().map(|s| (&s.body, 3, s.anchors));
        for (body, rank, anchors) in bodies.chain(segments) {
            if body.rank != rank {
                return Some(format!("a body of rank {}, not {rank}", body.rank));
            }
            if body.has_reductions() {
                return Some("a reduction in an attachment".into());
            }
            if anchors == 0 || anchors > 2 {
                return Some(format!("{anchors} anchors, not 1 or 2"));
            }
            let late = |v: &Value| matches!(v, Value::Anchor(i) if *i >= anchors);
            if body.values.iter().any(late) {
                return Some(format!("an anchor above {anchors}"));
            }
            let flat = |o: &super::Operand| o.addressing == super::Addressing::Flat;
            if body.operands().any(flat) {
                return Some("flat addressing in an attachment".into());
            }
        }
        if let Some(fault) =
            self.quant_epilogue.as_ref().and_then(|epilogue| epilogue.fault(&self.segments))
        {
            return Some(fault);
        }
        match self.segments.len() {
            n if n > MAX_SEGMENTS => Some(format!("{n} segments, at most {MAX_SEGMENTS}")),
            _ if self.segments.iter().any(|s| s.body.outputs.is_empty()) => {
                Some("a segment that writes nothing".into())
            }
            _ => None,
        }
    }
}

impl QuantEpilogue {
    fn fault(&self, segments: &[Segment]) -> Option<String> {
        let [segment] = segments else {
            return Some(format!("{} segments have a quant epilogue, not 1", segments.len()));
        };
        let Some(output) = segment.body.outputs.get(self.output as usize) else {
            return Some(format!("output {} of {}", self.output, segment.body.outputs.len()));
        };
        if output.operand.dtype != DType::F32 {
            return Some(format!("{} is rounded, not f32", output.operand.dtype));
        }
        let OperandLayout::Codes { orders, .. } = &self.form else { return None };
        match orders.len() {
            0 => Some("codes in no order".into()),
            n if n > MAX_ORDERS => Some(format!("codes in {n} orders, at most {MAX_ORDERS}")),
            _ if !orders.iter().all(|order| order.is_known()) => Some(format!("orders {orders:?}")),
            _ if orders.iter().any(|order| order.rows() != orders[0].rows()) => {
                Some(format!("rows that lie together and rows that do not: orders {orders:?}"))
            }
            _ => None,
        }
    }
}

/// Returns the number of workgroups that the epilogue segments of a matrix product need: grid x
/// times y of a `matvec_*`, grid x of a `matmul_*`. `rows` is the number of rows of `w` per
/// workgroup (`ROWS` or `BN`). `segments` holds, for each segment, its number of evaluations and
/// the number of anchor results that one evaluation reads. No workgroup spans two segments.
pub fn attach_groups(rows: u32, segments: impl IntoIterator<Item = (Dim, u32)>) -> Dim {
    let groups = segments.into_iter().map(|(evaluations, anchors)| {
        (evaluations * Dim::from(anchors)).ceil_div(&Dim::from(rows))
    });
    groups.fold(Dim::new(0), |sum, groups| sum + groups)
}

/// Checks that a kernel supports a fusion.
///
/// # Errors
/// The reason why it does not, or why the fusion is malformed.
pub fn supports(name: &str, fusion: &KernelFusion) -> Result<(), String> {
    let (entry, _) = catalogue::find(name).ok_or("the kernel is not in the catalogue")?;
    if let Some(fault) = fusion.fault() {
        return Err(fault);
    }
    let (prologue, segment) = takes(entry);
    if fusion.norm.is_some() && !entry.takes_norm() {
        return Err("it does not normalise the rows of x".into());
    }
    if fusion.prologue.is_some() && !prologue {
        return Err("it has no prologue".into());
    }
    if !fusion.segments.is_empty() && !segment {
        return Err("it has no epilogue".into());
    }
    if fusion
        .quant_epilogue
        .as_ref()
        .is_some_and(|epilogue| !entry.supports_quant_epilogue(&epilogue.form))
    {
        return Err("it has no quant epilogue".into());
    }
    let plain = |s: &Segment| s.anchors == 1;
    if !entry.is_linear() && (fusion.segments.len() > 1 || !fusion.segments.iter().all(plain)) {
        return Err("it takes one segment of one anchor".into());
    }
    let bodies = || fusion.prologue.iter().chain(fusion.segments.iter().map(|s| &s.body));
    if let Some(input) = bodies().flat_map(|body| &body.inputs).find(|input| input.dtype.is_half())
    {
        return Err(format!("an input of {}, whose elements have 2 bytes", input.dtype));
    }
    let written = || bodies().flat_map(|body| &body.outputs).map(|output| &output.operand);
    for half in written().filter(|operand| operand.dtype.is_half()) {
        if let Some(other) = written().find(|o| o.binding == half.binding && !o.dtype.is_half()) {
            let (a, b) = (half.dtype, other.dtype);
            return Err(format!("{a} and {b} in buffer {} that is written", half.binding));
        }
    }
    Ok(())
}

/// Returns whether a kernel supports a prologue, and whether it supports a segment.
fn takes(entry: &Entry) -> (bool, bool) {
    match plain_name(entry.name) {
        "matvec_*" | "matvec_int8_*" | "matmul_*" | "matmul_batched" | "conv2d" => (true, true),
        "matvec_prequant_*" | "matvec_mma_*" | "matmul_coop_*" | "split_k_reduce" => (false, true),
        "matmul_batched_tiled" => (false, true),
        "quantize_activations" => (true, false),
        "attn_coop" | "attn_decode" | "attn_prefill" | "attn_split_kv_reduce" => (false, true),
        "attn_subgroup" | "attn_split_kv_fused" => (false, true),
        _ => (false, false),
    }
}
