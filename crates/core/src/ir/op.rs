//! Every operation of a graph. `reference` defines the values, `infer` the shapes.
//!
//! Shapes in the comments are outermost first. Composite operations (RMSNorm, attention, RoPE)
//! exist in addition to the primitives that could express them: a hand-built model states its
//! structure, and patterns recognise it in graphs of primitives.

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
    /// Several weights of one format, concatenated by rows and read by one product: `[sum of rows,
    /// k]`. Each is bound by its own name.
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
    /// Literal numbers as 32-bit words in row-major order; a single word is broadcast.
    Constant {
        /// Bits of each element.
        words: Vec<u32>,
    },

    // ---- elementwise, with NumPy broadcasting
    /// `op(x)`.
    Unary(UnaryOp),
    /// `op(a, b)`.
    Binary(BinaryOp),
    /// `if condition { a } else { b }`; operands condition (`bool`), a, b.
    Select,
    /// Conversion; float to integer truncates and saturates.
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
    /// Index of the largest element along the last axis, the lowest among equals. NaN compares
    /// larger than any number, as in NumPy: `[.., n]` -> `[..]` of `u32`.
    ArgMax,
    /// The best token of each row of logits: `[.., n]` -> `[..]` of `u32`, as [`Op::ArgMax`]. A row
    /// whose largest logit is not finite gives the word of a [`crate::sampling::NoToken`] with the
    /// reason.
    Greedy,
    /// Samples one index along the last axis. Operands are logits `[.., n]` and, per row, sampling
    /// parameters `[.., 7]` of `u32` ([`crate::sampling::SampleParams::words`]); the result is `[..]` of `u32`.
    /// A row that yields no token gives the word of a [`crate::sampling::NoToken`].
    Sample,
    /// Along the last axis; a row of only -inf gives zeros.
    Softmax,

    // ---- products
    /// `[.., m, k]` times `[.., k, n]`, leading dimensions broadcast.
    MatMul,
    /// `x` `[.., k]` times the transpose of a weight `[n, k]`: `[.., n]`.
    Linear {
        /// Conversion of `x` before the product.
        mode: ComputeMode,
    },
    /// `x` `[batch, in_c, h, w]`, weight `[out_c, in_c / groups, kh, kw]`.
    Conv2d(Conv2d),
    /// `x` `[batch, channels, h, w]`.
    Pool2d(Pool2d),

    // ---- normalisation
    /// `x * rsqrt(mean(x^2) + eps) * weight` along the last axis; operands x, weight `[n]`.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean) * rsqrt(variance + eps) * weight + bias` along the last axis; operands x,
    /// weight `[n]`, bias `[n]`.
    LayerNorm {
        /// Added to the variance.
        eps: f32,
    },

    // ---- attention
    /// Rotary position embedding; operands x `[tokens, heads, head_dim]`, positions `[tokens]`
    /// (`i32`), frequencies `[rot_dim / 2]` in radians per position.
    Rope {
        /// Which elements form a pair.
        pairs: RopePairs,
        /// Number of leading elements of a head that are rotated; even.
        rot_dim: usize,
    },
    /// Grouped-query attention; operands q `[tokens, heads, head_dim]`, k and v `[kv_len, kv_heads,
    /// head_dim]`; token `t` is at key position `past + t`.
    ///
    /// A fourth operand, spans `[tokens, 2]` (`i32`), gives each token its range of keys: the
    /// first, and one past the last. Then `causal` is false, `past` is 0, and a token is at the
    /// last key of its span. So tokens of several sequences can share one table of keys.
    Attention {
        /// Scale of the scores.
        scale: f32,
        /// Whether a token sees only keys up to its own position.
        causal: bool,
        /// Number of previous keys that a token sees, including its own; `None` is all.
        window: Option<u32>,
        /// Number of keys before the first token.
        past: Dim,
        /// [`ComputeMode::F32`], or [`ComputeMode::F16`] if keys and values are `f16`: queries
        /// (each row scaled as described there) and softmax weights may be rounded to f16.
        mode: ComputeMode,
    },

    // ---- data movement
    /// Elements of `x` at `ids` along an axis: `[a.., n, b..]` and `[ids..]` -> `[a.., ids..,
    /// b..]`. An id out of range gives zeros. Operands x, ids (`i32` or `u32`).
    Gather {
        /// The axis.
        axis: usize,
    },
    /// A state with `src` written at `at..` of its first axis; operands state, src. The result is
    /// the same memory: the operand may not be used afterwards.
    Update {
        /// First written index.
        at: Dim,
    },
    /// A state with row `i` of `src` written at row `rows[i]` of its first axis; operands state
    /// `[n, rest..]`, src `[r, rest..]`, rows `[r]` (`i32`). A row index out of range is dropped.
    /// Indices must be distinct; among duplicates it is unspecified which row is kept. As for
    /// [`Op::Update`], the result is the same memory.
    Scatter,
    /// Concatenates tensors along an axis; the other sizes are equal.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// Pads a tensor with one constant value.
    Pad {
        /// Elements before and after, for each axis.
        amounts: Vec<(u64, u64)>,
        /// Bits of the value.
        word: u32,
    },

    // ---- user-defined
    /// One result of a user's kernel, which declares its operands.
    Custom(Box<Custom>),

    // ---- aliases: views of the same memory
    /// The same elements in row-major order with another shape.
    Reshape(Shape),
    /// Permutes the axes: axis `i` of the result is axis `perm[i]` of the operand.
    Transpose(Vec<usize>),
    /// Indices `start`, `start + step`, .. along an axis, `len` of them.
    Slice {
        /// The axis.
        axis: usize,
        /// First index.
        start: Dim,
        /// Number of indices.
        len: Dim,
        /// Stride between indices, at least 1.
        step: u64,
    },
    /// Broadcasts dimensions of size 1, and new leading ones.
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

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum; 0 if empty.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Product; 1 if empty.
    Prod,
    /// Largest; -inf if empty.
    Max,
    /// Smallest; inf if empty.
    Min,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

    /// The lower-case name.
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

/// Which elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RopePairs {
    /// `(2j, 2j + 1)`: the order of llama's GGUF files.
    Interleaved,
    /// `(j, j + rot_dim / 2)`: the order of GPT-NeoX and Hugging Face.
    Half,
}

/// Geometry of a 2-D convolution; pairs are height, width.
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

/// Geometry and kind of a 2-D pooling; pairs are height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool2d {
    /// Largest or mean.
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
    /// Adjacent windows without padding.
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
    /// The largest.
    Max,
    /// The mean.
    Mean,
}

/// How fusion may treat an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Input, weight, state, constant.
    Leaf,
    /// One result per element.
    Elementwise,
    /// Many elements to one along an axis.
    Reduction,
    /// Products and attention: the anchors of fusion.
    Anchor,
    /// A view of the same memory.
    Alias,
    /// Gather, update, RoPE and other special cases.
    Special,
}

impl Op {
    /// The product with a weight, with an unconverted `x`.
    pub const fn linear() -> Op {
        Op::Linear { mode: ComputeMode::F32 }
    }

    /// Attention in f32. Arguments: scale of the scores, causal mask, window in keys, and number of
    /// keys before the first token.
    pub const fn attention(scale: f32, causal: bool, window: Option<u32>, past: Dim) -> Op {
        Op::Attention { scale, causal, window, past, mode: ComputeMode::F32 }
    }

    /// The compute mode, for operations that have one.
    pub const fn mode(&self) -> Option<ComputeMode> {
        match self {
            Op::Linear { mode } | Op::Attention { mode, .. } => Some(*mode),
            _ => None,
        }
    }

    /// The fusion class.
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
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Pool2d(_) => OpClass::Reduction,
            Op::MatMul | Op::Linear { .. } | Op::Conv2d(_) | Op::Attention { .. } => {
                OpClass::Anchor
            }
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice { .. } | Op::Expand(_) => OpClass::Alias,
            Op::Rope { .. }
            | Op::Gather { .. }
            | Op::Update { .. }
            | Op::Scatter
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Custom(_) => OpClass::Special,
        }
    }

    /// Whether it writes its first operand, a state, in place.
    pub fn overwrites(&self) -> bool {
        matches!(self, Op::Update { .. } | Op::Scatter)
    }

    /// Storage format of a weight or of merged weights.
    pub fn stored(&self) -> Option<Format> {
        match self {
            Op::Weight { format, .. } | Op::Merged { format, .. } => Some(*format),
            _ => None,
        }
    }

    /// The binding names of a leaf: one, several for merged weights, none for other nodes.
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

    /// The lower-case name, without parameters: `rms_norm`, `add`.
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
            Op::MatMul => "matmul",
            Op::Linear { .. } => "linear",
            Op::Conv2d(_) => "conv2d",
            Op::Pool2d(_) => "pool2d",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Rope { .. } => "rope",
            Op::Attention { .. } => "attention",
            Op::Gather { .. } => "gather",
            Op::Update { .. } => "update",
            Op::Scatter => "scatter",
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
