//! Every operation of a graph. `reference` defines the values, `infer` the shapes.
//!
//! Shapes in the comments list the outermost dimension first. Composite operations (RMSNorm,
//! attention, RoPE) exist in addition to the primitives that could express them: a hand-built model
//! states its structure, and patterns recognise it in graphs of primitives.

use serde::{Deserialize, Serialize};

use super::custom::Custom;
use super::scalar::{BinaryOp, UnaryOp};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};

/// One operation. Operands are the inputs of its node, in the order given here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    // ---- leaves
    /// A tensor that each run provides.
    Input {
        /// Name by which a run binds it.
        name: String,
    },
    /// A constant tensor, bound once by name, in a storage format. Its elements are `f32` for every
    /// format except plain integers.
    Weight {
        /// Name by which it is bound.
        name: String,
        /// Storage format.
        format: Format,
    },
    /// Several weights of one format, concatenated by rows and read by one product:
    /// `[sum of rows, k]`. Each weight is bound by its own name.
    Merged {
        /// The weights, in row order.
        parts: Vec<MergedPart>,
        /// Storage format of all of them.
        format: Format,
    },
    /// Memory that persists from run to run, initially zero.
    State {
        /// Name by which it is bound.
        name: String,
    },
    /// Literal values as 32-bit words in row-major order; a single word is broadcast.
    Constant {
        /// Bits of each element.
        words: Vec<u32>,
    },

    // ---- elementwise, with NumPy broadcasting
    /// `op(x)` for every element.
    Unary(UnaryOp),
    /// `op(a, b)` for every pair of elements.
    Binary(BinaryOp),
    /// `if condition { a } else { b }` for every element. Operands: condition (`bool`), a, b.
    Select,
    /// Converts to an element type. Float to integer truncates and saturates.
    Cast(DType),

    // ---- reductions
    /// Reduces some axes; they remain with size 1 if `keep` is set.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// Axes, ascending.
        axes: Vec<usize>,
        /// Whether reduced axes remain with size 1.
        keep: bool,
    },
    /// Index of the largest element along the last axis, the lowest index among equals: `[.., n]`
    /// -> `[..]` of `u32`. NaN compares greater than any number, as in NumPy.
    ArgMax,
    /// Index of the largest logit of each row, as for [`Op::ArgMax`]: `[.., n]` -> `[..]` of `u32`.
    /// If that logit is not finite, the result is the word of a [`crate::sampling::NoToken`] with
    /// the reason.
    Greedy,
    /// Samples one index along the last axis: `[.., n]` -> `[..]` of `u32`. Operands: logits
    /// `[.., n]`, and for each row sampling parameters `[.., 7]` of `u32`
    /// ([`crate::sampling::SampleParams::words`]). If a row yields no token, the result is the word
    /// of a [`crate::sampling::NoToken`].
    Sample,
    /// Softmax along the last axis; a row in which every element is -inf becomes zeros.
    Softmax,
    /// Indices of the `k` largest elements along the last axis, the largest first, the lowest index
    /// first among equals: `[.., n]` -> `[.., k]` of `u32`. NaN compares greater than any number.
    TopK {
        /// Number of indices; at most the size of the last axis.
        k: usize,
    },
    /// Indices along the last axis in the order of their elements: `[.., n]` -> `[.., n]` of `u32`.
    /// Equal elements keep the order of their indices. NaN compares greater than any number.
    ArgSort {
        /// Whether the largest element comes first.
        descending: bool,
    },

    // ---- products
    /// Matrix product of `[.., m, k]` and `[.., k, n]`; leading dimensions broadcast.
    MatMul,
    /// Product of `x` `[.., k]` and the transpose of a weight `[n, k]` -> `[.., n]`.
    Linear {
        /// Conversion of `x` before the product.
        mode: ComputeMode,
    },
    /// Product with the matrices of chosen experts: `y[t, j] = weight[ids[t, j]] x[t, j]`. Operands:
    /// x `[tokens, active, k]`, or `[tokens, 1, k]` if all experts of a token read one row, a weight
    /// `[experts, n, k]`, and ids `[tokens, active]` (`i32` or `u32`) -> `[tokens, active, n]`. An id
    /// out of range gives zeros.
    ExpertLinear {
        /// Conversion of `x` before the product.
        mode: ComputeMode,
    },
    /// 2-D convolution. Operands: x `[batch, in_c, h, w]`, weight `[out_c, in_c / groups, kh, kw]`.
    Conv2d(Conv2d),
    /// 2-D pooling of `x` `[batch, channels, h, w]`.
    Pool2d(Pool2d),

    // ---- normalisation
    /// `x * rsqrt(mean(x^2) + eps) * weight` along the last axis. Operands: x, weight `[n]`.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean) * rsqrt(variance + eps) * weight + bias` along the last axis. Operands: x,
    /// weight `[n]`, bias `[n]`.
    LayerNorm {
        /// Added to the variance.
        eps: f32,
    },

    // ---- attention
    /// Rotary position embedding. Operands: x `[tokens, heads, head_dim]`, positions `[tokens]`
    /// (`i32`), frequencies `[rot_dim / 2]` in radians per position.
    Rope {
        /// Which elements form a pair.
        pairs: RopePairs,
        /// Number of leading elements of a head that are rotated; must be even.
        rot_dim: usize,
    },
    /// Grouped-query attention. Operands: q `[tokens, heads, head_dim]`, k and v
    /// `[kv_len, kv_heads, head_dim]`. Token `t` is at key position `past + t`.
    ///
    /// An optional fourth operand, spans `[tokens, 2]` (`i32`), holds the range of keys that each
    /// token sees: the first key, and one past the last. Then `causal` must be false and `past`
    /// must be 0, and a token is at the last key of its span. With spans, tokens of several
    /// sequences can share one table of keys.
    ///
    /// With `sinks`, the last operand, `[heads]` (`f32`), is the score of a key that every token sees
    /// and that has no value: it only takes part in the sum by which weights are divided. A token
    /// that sees no other key gets zeros.
    ///
    /// With a soft cap `c`, each score `s`, already multiplied by `scale`, becomes `c * tanh(s / c)`.
    Attention {
        /// Factor by which the scores are multiplied.
        scale: f32,
        /// Whether a token sees only keys up to its own position.
        causal: bool,
        /// Number of most recent keys that a token sees, including its own; `None` for all.
        window: Option<u32>,
        /// Number of keys before the first token.
        past: Dim,
        /// [`ComputeMode::F32`], or [`ComputeMode::F16`] if keys and values are `f16`. In `F16`,
        /// queries (with rows scaled as that mode describes) and softmax weights may be rounded to
        /// f16.
        mode: ComputeMode,
        /// Whether the last operand is the sink of each head.
        #[serde(default)]
        sinks: bool,
        /// Bound of the scores, above 0; `None` for no bound.
        #[serde(default)]
        soft_cap: Option<f32>,
    },

    /// Gated delta rule, a recurrence over tokens. For each sequence and value head, with key head
    /// `h % key_heads` and a state `S` `[key_dim, value_dim]`: `S = exp(decay) S`, then
    /// `S = S + key (beta (value - key S))`, then `y = query S`. A decay whose exponential is 0
    /// clears the state, whatever it holds.
    ///
    /// Operands: query and key `[sequences, tokens, key_heads, key_dim]`, value `[sequences, tokens,
    /// heads, value_dim]`, decay and beta `[sequences, tokens, heads]`, state `[sequences, heads,
    /// key_dim, value_dim]`. Result: `[sequences, heads, tokens + key_dim, value_dim]`, `y` of each
    /// token, then the state after the last one. All are `f32`.
    DeltaRule,

    // ---- data movement
    /// Elements of `x` at `ids` along an axis: `[a.., n, b..]` and `[ids..]` ->
    /// `[a.., ids.., b..]`. An id out of range selects zeros. Operands: x, ids (`i32` or `u32`).
    Gather {
        /// Axis to gather from.
        axis: usize,
    },
    /// Elements of each row at its own indices, along the last axis: `y[.., j] = x[.., ids[.., j]]`.
    /// Operands: x `[a.., n]`, ids `[a.., k]` (`i32` or `u32`) -> `[a.., k]`. An index out of range
    /// selects 0.
    TakeAlong,
    /// Writes `src` into a state, from index `at` of the first axis on. Operands: state, src. The
    /// result is the same memory, so the state operand must not be read afterwards.
    Update {
        /// Index of the first row that is written.
        at: Dim,
    },
    /// Writes row `i` of `src` to row `rows[i]` of a state. Operands: state `[n, rest..]`, src
    /// `[r, rest..]`, rows `[r]` (`i32`). Rows with an index out of range are dropped. Indices
    /// should be distinct: of rows with the same index, it is unspecified which is kept. As for
    /// [`Op::Update`], the result is the same memory.
    Scatter,
    /// Adds rows at given indices: `y[ids[i]] = x[ids[i]] + source[i]`, in the order of `i` if rows
    /// have the same index. Operands: x `[n, rest..]`, source `[r, rest..]` of the same float type,
    /// ids `[r]` (`i32` or `u32`). Rows with an index out of range are dropped.
    IndexAdd,
    /// Concatenates tensors along an axis; the other sizes must be equal.
    Concat {
        /// Axis along which tensors are concatenated.
        axis: usize,
    },
    /// Pads a tensor with one constant value.
    Pad {
        /// Number of elements to add before and after, for each axis.
        amounts: Vec<(u64, u64)>,
        /// Bits of the padding value.
        word: u32,
    },

    // ---- user-defined
    /// One result of a user's kernel, which declares the shapes of its operands.
    Custom(Box<Custom>),

    // ---- aliases: views of the same memory
    /// The same elements in row-major order with a different shape.
    Reshape(Shape),
    /// Permutes the axes: axis `i` of the result is axis `perm[i]` of the operand.
    Transpose(Vec<usize>),
    /// The `len` indices `start`, `start + step`, ... along an axis.
    Slice {
        /// Axis to slice.
        axis: usize,
        /// First index.
        start: Dim,
        /// Number of indices.
        len: Dim,
        /// Stride between indices, at least 1.
        step: u64,
    },
    /// Broadcasts to a shape: repeats dimensions of size 1, and adds leading dimensions.
    Expand(Shape),
}

/// One weight of a merged leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedPart {
    /// Name by which it is bound.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
}

/// The function of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum; 0 if empty.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Product; 1 if empty.
    Prod,
    /// Maximum, NaN if an element is NaN; -inf if empty.
    Max,
    /// Minimum, NaN if an element is NaN; inf if empty.
    Min,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

    /// Returns the lowercase name, such as `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
}

/// Which elements of a head form pair `j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RopePairs {
    /// `(2j, 2j + 1)`, the order in GGUF files of Llama.
    Interleaved,
    /// `(j, j + rot_dim / 2)`, the order of GPT-NeoX and Hugging Face.
    Half,
}

/// Geometry of a 2-D convolution; pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    /// Stride of the window.
    pub stride: (u32, u32),
    /// Zero padding before: top, left.
    pub pad_before: (u32, u32),
    /// Zero padding after: bottom, right.
    pub pad_after: (u32, u32),
    /// Dilation of the window.
    pub dilation: (u32, u32),
    /// Number of channel groups.
    pub groups: u32,
}

impl Default for Conv2d {
    /// Stride 1, no padding, no dilation, one group.
    fn default() -> Conv2d {
        Conv2d {
            stride: (1, 1),
            pad_before: (0, 0),
            pad_after: (0, 0),
            dilation: (1, 1),
            groups: 1,
        }
    }
}

/// Kind and geometry of 2-D pooling; pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool2d {
    /// Reduction of each window.
    pub kind: PoolKind,
    /// Size of the window.
    pub kernel: (u32, u32),
    /// Stride of the window.
    pub stride: (u32, u32),
    /// Padding before: top, left.
    pub pad_before: (u32, u32),
    /// Padding after: bottom, right.
    pub pad_after: (u32, u32),
    /// Dilation of the window.
    pub dilation: (u32, u32),
    /// Whether a mean counts positions in the padding.
    pub count_pad: bool,
}

impl Pool2d {
    /// Creates a pooling geometry with adjacent windows, without padding or dilation.
    pub fn new(kind: PoolKind, kernel: (u32, u32)) -> Pool2d {
        Pool2d {
            kind,
            kernel,
            stride: kernel,
            pad_before: (0, 0),
            pad_after: (0, 0),
            dilation: (1, 1),
            count_pad: false,
        }
    }
}

/// Reduction of a pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// Maximum, NaN if an element is NaN.
    Max,
    /// Arithmetic mean.
    Mean,
}

/// How fusion may treat an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Input, weight, state, constant.
    Leaf,
    /// Each element of the result depends on one element of each operand.
    Elementwise,
    /// Combines the elements along an axis: reductions, softmax, norms, pooling, sampling.
    Reduction,
    /// Matrix products, convolution and attention: the anchors of fusion.
    Anchor,
    /// A view of the same memory.
    Alias,
    /// Gather, update, RoPE and other special cases.
    Special,
}

impl Op {
    /// Returns the fusion class.
    pub fn class(&self) -> OpClass {
        match self {
            Op::Input { .. }
            | Op::Weight { .. }
            | Op::Merged { .. }
            | Op::State { .. }
            | Op::Constant { .. } => OpClass::Leaf,
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => OpClass::Elementwise,
            Op::Reduce { .. }
            | Op::ArgMax
            | Op::Greedy
            | Op::Sample
            | Op::Softmax
            | Op::TopK { .. }
            | Op::ArgSort { .. }
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Pool2d(_) => OpClass::Reduction,
            Op::MatMul | Op::Linear { .. } | Op::Conv2d(_) | Op::Attention { .. } => {
                OpClass::Anchor
            }
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice { .. } | Op::Expand(_) => OpClass::Alias,
            Op::Rope { .. }
            | Op::ExpertLinear { .. }
            | Op::DeltaRule
            | Op::Gather { .. }
            | Op::TakeAlong
            | Op::Update { .. }
            | Op::Scatter
            | Op::IndexAdd
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Custom(_) => OpClass::Special,
        }
    }

    /// Returns whether the operation writes its first operand, a state, in place.
    pub fn overwrites(&self) -> bool {
        matches!(self, Op::Update { .. } | Op::Scatter)
    }

    /// Returns the storage format of a weight or of merged weights. Returns `None` for other
    /// operations.
    pub fn stored(&self) -> Option<Format> {
        match self {
            Op::Weight { format, .. } | Op::Merged { format, .. } => Some(*format),
            _ => None,
        }
    }

    /// Iterates over the names by which a leaf is bound: one, or several for merged weights. Other
    /// operations and constants have none.
    pub fn bound_names(&self) -> impl Iterator<Item = &str> {
        let (one, parts) = match self {
            Op::Input { name } | Op::Weight { name, .. } | Op::State { name } => {
                (Some(name.as_str()), &[][..])
            }
            Op::Merged { parts, .. } => (None, &parts[..]),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(parts.iter().map(|part| part.name.as_str()))
    }

    /// Returns the lowercase name, without parameters: `rms_norm`, `add`.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Weight { .. } => "weight",
            Op::Merged { .. } => "merged",
            Op::State { .. } => "state",
            Op::Constant { .. } => "constant",
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Reduce { .. } => "reduce",
            Op::ArgMax => "argmax",
            Op::Greedy => "greedy",
            Op::Sample => "sample",
            Op::Softmax => "softmax",
            Op::TopK { .. } => "top_k",
            Op::ArgSort { .. } => "argsort",
            Op::MatMul => "matmul",
            Op::Linear { .. } => "linear",
            Op::ExpertLinear { .. } => "expert_linear",
            Op::Conv2d(_) => "conv2d",
            Op::Pool2d(_) => "pool2d",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Rope { .. } => "rope",
            Op::Attention { .. } => "attention",
            Op::DeltaRule => "delta_rule",
            Op::Gather { .. } => "gather",
            Op::TakeAlong => "take_along",
            Op::Update { .. } => "update",
            Op::Scatter => "scatter",
            Op::IndexAdd => "index_add",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Custom(_) => "custom",
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
            Op::Slice { .. } => "slice",
            Op::Expand(_) => "expand",
        }
    }
}
