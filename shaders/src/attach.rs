//! What is fused into a kernel of the catalogue: work on what it reads and on what it makes.
//!
//! A product, convolution or attention kernel is an *anchor*. Its attachment is data:
//! - `norm`: the rows of `x` (behind the prologue, where there is one) are normalised by RMS as
//!   they are read (`matvec_*`, `matvec_int8_*`, `round_codes` and `round_half` only). Since `norm(x) . w = factor * sum of x * g * w`, the factor
//!   is found beside the sum. `vec4` promises of its weight what it does of `x`;
//! - `prologue`: a body applied to each element of `x` as it is read, over the index space
//!   [row, column]; [`Value::Anchor`]`(0)` is the element, the last value takes its place. For
//!   `matmul_batched` it is `a`, whose row is `batch * m + i`; for `conv2d` the row is
//!   `batch * in_c + channel`, the column the pixel of that plane;
//! - `segments`: bodies applied to what the anchor makes, in the place of its own store.
//!
//! **Index spaces of segments**, three dimensions `(i, s0, s1)` with strides for each operand:
//! - `matvec_*`, `matvec_int8_*`, `matvec_codes_*`, `matvec_tiles_*`, `matmul_*`, `matmul_coop_*`, `scaled_rows`: `i` is the row of `x`; `(s0, s1)` counts evaluations of the segment,
//!   each on `anchors` products: `Anchor(j)` is row `first_row + s0 * stride0 + s1 * stride1 + j *
//!   distance` of `w`. So a merged product of q, k and v is three segments, gate and up are the two
//!   anchors of one, and a rotation takes the two rows of its pair;
//! - `matmul_batched`, `product_tiles`: (batch, row, column); `conv2d`: (batch * out channels, row, column) - its
//!   plane, then the place in it; `attn_*`: (token, head, element of the head). One segment, one
//!   anchor;
//! - `hand_on`: what the only segment stores is rounded as well, for the products that follow: to codes (`matvec_codes_*`, `matvec_tiles_*`, and
//!   what ends an attention of few tokens) or to halves (`scaled_rows`, a workgroup a row then, of at most `K` columns).
//!   Column c of row i is evaluation c of the segment, (head, element) of attention.
//!
//! **Parameters**, after the kernel's own: for `norm`: `eps` (f32 bits), `offset` of its weight;
//! for the prologue, the words of its operands over rank 2; for each segment of a product with a
//! weight: `first_row`, `size0`, `size1`, `stride0`, `stride1`, `distance`; then for each segment the
//! words of its operands over rank 3 (inputs, then outputs); for `hand_on` the columns of a row and where the norm's weight
//! begins, of halves also the norm's `eps` and the words before the factors. `Flat` addressing has no meaning here.
//!
//! **Bindings**: the kernel's own before its output, what it reads and what it keeps to itself; those that the attachment reads, of which prologue and
//! segments count in one numbering, the norm's weight wherever it says; those that the segments
//! write, in one numbering, in the place of the kernel's own output where there are segments; then the words that are
//! handed on, a row as `round_codes` writes it, with its codes once in each order, and with a norm the sums of squares of
//! each 32 columns behind it, filled up to whole fours; or all rows and then their factors as `round_half` writes both. Segments may
//! write elements of two bytes, each by an atomic operation on its half of a word, and read none.

use serde::{Deserialize, Serialize};

use super::catalogue::{self, Entry};
use super::codes::CodeOrder;
use super::fused::{FusedExpr, Value};
use warploom_core::base::{DType, Dim};

/// What is fused into a kernel of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attachment {
    /// Rows of `x` are normalised by RMS; the attached read that is the norm's weight.
    pub norm: Option<u32>,
    /// Applied to each element of `x`: rank 2, no outputs, the last value is the result.
    pub prologue: Option<FusedExpr>,
    /// Applied to what the kernel makes; none: it stores as it always does.
    pub segments: Vec<Segment>,
    /// What the only segment stores is rounded for the products that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_on: Option<HandOn>,
}

/// How a kernel rounds what it stores for the products that follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HandOn {
    /// The output of the segment, of f32.
    pub output: u32,
    /// Rows are normalised by RMS in front of those products; the attached read that is the norm's weight.
    pub norm: Option<u32>,
    /// What the products read.
    pub form: HandForm,
    /// Whether others read the output itself: else it has a buffer, and nothing is stored there.
    pub kept: bool,
}

/// What is handed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HandForm {
    /// Codes of 8 bits.
    Codes {
        /// Their orders, each with codes of its own.
        orders: Vec<CodeOrder>,
        /// How 32 neighbours find what they round by.
        neighbours: Neighbours,
    },
    /// Halves and factors of rows, by subgroups of 32 threads at least.
    Halves(HalvesForm),
}

/// How 32 neighbours that round together find their largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// Through memory of the workgroup.
    Apart,
    /// By exchanges within a subgroup; the smallest has 32 threads at least.
    Lanes,
    /// By reductions of their subgroup: all have 32 threads.
    Subgroup,
}

/// How `round_half` makes halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HalvesForm {
    /// Whether they are rounded to 8 bits first.
    pub rounded: bool,
    /// Whether they lie row after row, not in blocks of 32 columns.
    pub plain: bool,
}

/// Work on a part of what a kernel makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Numbers of the kernel that meet in one evaluation: 1 or 2.
    pub anchors: u32,
    /// Rank 3, without reductions.
    pub body: FusedExpr,
}

/// Words of a segment before those of its operands, for products with a weight matrix.
pub const SEGMENT_WORDS: u32 = 6;

/// Words of what is handed on as codes: columns of a row, where the norm's weight begins.
pub const HAND_WORDS: u32 = 2;

/// Words of what is handed on as halves: the same, the norm's `eps`, words before the factors.
pub const HAND_HALVES_WORDS: u32 = 4;

/// Most orders in which codes are handed on.
pub const MAX_ORDERS: usize = 2;

/// Most segments of an attachment.
pub const MAX_SEGMENTS: usize = 4;

impl Attachment {
    /// Buffers that it reads.
    pub fn reads(&self) -> u32 {
        let bodies = self.prologue.iter().chain(self.segments.iter().map(|s| &s.body));
        let gain = self.hand_on.iter().filter_map(|hand| hand.norm);
        let norms = self.norm.into_iter().chain(gain).map(|n| n + 1);
        bodies.map(FusedExpr::reads).chain(norms).max().unwrap_or(0)
    }

    /// Buffers that it writes, in the place of the kernel's own output.
    pub fn writes(&self) -> u32 {
        self.stored() + u32::from(self.hand_on.is_some())
    }

    /// Buffers that its segments write.
    pub fn stored(&self) -> u32 {
        self.segments.iter().map(|segment| segment.body.writes()).max().unwrap_or(0)
    }

    /// Words that it adds to the kernel's parameters. `rows`: whether the kernel is a product with
    /// a weight matrix, whose segments say which rows they take.
    pub fn words(&self, rows: bool) -> u32 {
        let norm = if self.norm.is_some() { 2 } else { 0 };
        let prologue = self.prologue.as_ref().map_or(0, FusedExpr::operand_words);
        let each = if rows { SEGMENT_WORDS } else { 0 };
        let segments = self.segments.iter().map(|s| each + s.body.operand_words());
        let hand = self.hand_on.as_ref().map_or(0, |hand| match hand.form {
            HandForm::Codes { .. } => HAND_WORDS,
            HandForm::Halves(_) => HAND_HALVES_WORDS,
        });
        norm + prologue + segments.sum::<u32>() + hand
    }

    /// The reason where it is not well formed.
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
        if let Some(fault) = self.hand_on.as_ref().and_then(|hand| hand.fault(&self.segments)) {
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

impl HandOn {
    fn fault(&self, segments: &[Segment]) -> Option<String> {
        let [segment] = segments else {
            return Some(format!("{} segments hand on, not 1", segments.len()));
        };
        let Some(output) = segment.body.outputs.get(self.output as usize) else {
            return Some(format!("output {} of {}", self.output, segment.body.outputs.len()));
        };
        if output.operand.dtype != DType::F32 {
            return Some(format!("{} is rounded, not f32", output.operand.dtype));
        }
        let HandForm::Codes { orders, .. } = &self.form else { return None };
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

/// Workgroups for the segments of a product with a weight matrix: grid x times y of a `matvec_*`, x
/// of a `matmul_*`. `rows`: rows of `w` of a workgroup (`ROWS`, `BN`); `segments`: evaluations and
/// anchors of each. A workgroup makes evaluations of one segment.
pub fn attach_groups(rows: u32, segments: impl IntoIterator<Item = (Dim, u32)>) -> Dim {
    let groups = segments.into_iter().map(|(evaluations, anchors)| {
        (evaluations * Dim::from(anchors)).ceil_div(&Dim::from(rows))
    });
    groups.fold(Dim::new(0), |sum, groups| sum + groups)
}

/// Whether a kernel takes an attachment.
///
/// # Errors
/// The reason where it does not, or where the attachment is not well formed.
pub fn supports(name: &str, attached: &Attachment) -> Result<(), String> {
    let (entry, _) = catalogue::find(name).ok_or("the kernel is not in the catalogue")?;
    if let Some(fault) = attached.fault() {
        return Err(fault);
    }
    let (prologue, segment) = takes(entry);
    if attached.norm.is_some() && !entry.takes_norm() {
        return Err("it does not normalise the rows of x".into());
    }
    if attached.prologue.is_some() && !prologue {
        return Err("nothing can be done with its operand as it is read".into());
    }
    if !attached.segments.is_empty() && !segment {
        return Err("nothing can be done with its result as it is written".into());
    }
    if attached.hand_on.as_ref().is_some_and(|hand| !entry.hands_on(&hand.form)) {
        return Err("it rounds nothing of what it stores".into());
    }
    let plain = |s: &Segment| s.anchors == 1;
    if !entry.is_linear() && (attached.segments.len() > 1 || !attached.segments.iter().all(plain)) {
        return Err("it takes one segment of one anchor".into());
    }
    let bodies = || attached.prologue.iter().chain(attached.segments.iter().map(|s| &s.body));
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

/// Whether a kernel takes a prologue, and whether it takes a segment.
fn takes(entry: &Entry) -> (bool, bool) {
    match entry.name {
        "matvec_*" | "matvec_int8_*" | "matmul_*" | "matmul_batched" | "conv2d" => (true, true),
        "matvec_codes_*" | "matvec_tiles_*" | "matmul_coop_*" | "scaled_rows" => (false, true),
        "product_tiles" => (false, true),
        "round_codes" => (true, false),
        "attn_coop" | "attn_decode" | "attn_prefill" | "attn_combine" => (false, true),
        "attn_lanes" | "attn_lanes_spans" | "attn_spread" | "attn_spread_spans" => (false, true),
        "attn_decode_spans" | "attn_combine_spans" => (false, true),
        _ => (false, false),
    }
}
