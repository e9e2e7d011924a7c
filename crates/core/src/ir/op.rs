//! Every operation a graph may hold. `reference` gives each its meaning, `infer` its shape.
//!
//! Shapes in the comments are outermost first. Composite operations (RMSNorm, attention, RoPE)
//! stand beside the primitives that could spell them: a model that is built by hand says what it
//! means, and patterns find the same in graphs that are spelled out.

use serde::{Deserialize, Serialize};

use super::custom::Custom;
use super::scalar::{BinaryOp, UnaryOp};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};

/// One operation. Operands are the inputs of its node, in the order given here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    // ---- leaves
    /// A tensor given at each run.
    Input {
        /// Name by which a run binds it.
        name: String,
    },
    /// A tensor that never changes: bound once by name, in a storage format; its elements are
    /// `f32` whatever the format, except plain integer formats.
    Weight {
        /// Name by which it is bound.
        name: String,
        /// How its bytes are stored.
        format: Format,
    },
    /// Several weights of one format, one after another by rows, as one product reads them:
    /// `[sum of rows, k]`. Each is bound by its own name.
    Merged {
        /// The weights, first rows first.
        parts: Vec<MergedPart>,
        /// How the bytes of every one are stored.
        format: Format,
    },
    /// Memory that lives from run to run, zero at first.
    State {
        /// Name by which it is bound.
        name: String,
    },
    /// Numbers written in the graph, as 32-bit words in row-major order (one word repeats).
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
    /// Conversion; floats to integers truncate and saturate.
    Cast(DType),

    // ---- reductions
    /// Reduces some axes; they stay with size 1 where `keep` is set.
    Reduce {
        /// Which reduction.
        op: ReduceOp,
        /// Axes, ascending.
        axes: Vec<usize>,
        /// Whether reduced axes stay with size 1.
        keep: bool,
    },
    /// Index of the largest along the last axis, lowest of equals, where NaN is larger than any number as in NumPy:
    /// `[.., n]` -> `[..]` of `u32`.
    ArgMax,
    /// The best token of each row of logits: `[.., n]` -> `[..]` of `u32`, as [`Op::ArgMax`]. A row without one, whose
    /// largest is not finite, gives the word of a [`crate::draw::NoToken`], which says why.
    Greedy,
    /// Draws one index along the last axis: logits `[.., n]` and, for each row, how it is drawn, `[.., 7]`
    /// of `u32` as [`crate::draw::Draw::words`] has it: `[..]` of `u32`. A row from which nothing can
    /// be drawn gives the word of a [`crate::draw::NoToken`].
    Sample,
    /// Along the last axis; a row of -inf throughout gives zeros.
    Softmax,

    // ---- products
    /// `[.., m, k]` times `[.., k, n]`, leading dimensions broadcast.
    MatMul,
    /// `x` `[.., k]` times the transpose of a weight `[n, k]`: `[.., n]`.
    Linear {
        /// What becomes of `x` before it is multiplied.
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
    /// Rotary positions; operands x `[tokens, heads, head_dim]`, positions `[tokens]` (`i32`),
    /// frequencies `[rot_dim / 2]` in radians a position.
    Rope {
        /// Which elements make a pair.
        pairs: RopePairs,
        /// Leading elements of a head that rotate; even.
        rot_dim: usize,
    },
    /// Grouped-query attention; operands q `[tokens, heads, head_dim]`, k and v
    /// `[kv_len, kv_heads, head_dim]`; token `t` stands at key position `past + t`.
    ///
    /// A fourth operand, spans `[tokens, 2]` (`i32`), says for each token which keys are its own:
    /// the first, and the one behind the last. Then `causal` is false and `past` 0, and a token
    /// stands at the last key of its span. So tokens of several sequences share one table of keys.
    Attention {
        /// Factor on the scores.
        scale: f32,
        /// Whether a token sees only keys up to its own position.
        causal: bool,
        /// How many keys back a token sees, itself included; `None` is all.
        window: Option<u32>,
        /// Keys before the first token.
        past: Dim,
        /// [`ComputeMode::F32`], or with keys and values of `f16` [`ComputeMode::F16`]: queries, each row of them
        /// scaled as that says, and the weights that softmax makes may be taken as halves.
        mode: ComputeMode,
    },

    // ---- data movement
    /// `x` at `ids` along an axis: `[a.., n, b..]` and `[ids..]` -> `[a.., ids.., b..]`. An id
    /// outside the axis gives zeros. Operands x, ids (`i32` or `u32`).
    Gather {
        /// The axis.
        axis: usize,
    },
    /// A state with `src` written at `at..` of its first axis; operands state, src. The result is
    /// the same memory: the operand may not be used after.
    Update {
        /// First index that is written.
        at: Dim,
    },
    /// A state with row `i` of `src` written at row `rows[i]` of its first axis; operands state
    /// `[n, rest..]`, src `[r, rest..]`, rows `[r]` (`i32`). A row outside the state is dropped;
    /// rows are distinct, else it is unknown which of them is kept. As for [`Op::Update`], the
    /// result is the same memory.
    Scatter,
    /// Tensors one after another along an axis; the other sizes are equal.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// Constant values around a tensor: one number for all.
    Pad {
        /// Elements before and after, for each axis.
        amounts: Vec<(u64, u64)>,
        /// Bits of the value.
        word: u32,
    },

    // ---- a user's
    /// One result of a kernel from outside; the operands are what it says.
    Custom(Box<Custom>),

    // ---- aliases: the same memory seen in another way
    /// The same elements in row-major order under another shape.
    Reshape(Shape),
    /// Axes in another order: axis `i` of the result is axis `perm[i]` of the operand.
    Transpose(Vec<usize>),
    /// `start`, `start + step`, .. along an axis, `len` of them.
    Slice {
        /// The axis.
        axis: usize,
        /// First index.
        start: Dim,
        /// Number of indices.
        len: Dim,
        /// From one index to the next, at least 1.
        step: u64,
    },
    /// Repeats dimensions of size 1 (and new leading ones).
    Expand(Shape),
}

/// One weight of a merged one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedPart {
    /// Name by which it is bound.
    pub name: String,
    /// Its rows.
    pub rows: u64,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum; 0 over nothing.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Product; 1 over nothing.
    Prod,
    /// Largest; -inf over nothing.
    Max,
    /// Smallest; inf over nothing.
    Min,
}

impl ReduceOp {
    /// Every one.
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

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RopePairs {
    /// `(2j, 2j + 1)`: llama's GGUF order.
    Interleaved,
    /// `(j, j + rot_dim / 2)`: GPT-NeoX and Hugging Face order.
    Half,
}

/// Geometry of a 2-D convolution; pairs are height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    /// Steps of the window.
    pub stride: (u32, u32),
    /// Zeros before: top, left.
    pub pad_before: (u32, u32),
    /// Zeros after: bottom, right.
    pub pad_after: (u32, u32),
    /// Steps between taps.
    pub dilation: (u32, u32),
    /// Groups of channels that do not mix.
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
    /// Steps of the window.
    pub stride: (u32, u32),
    /// Padding before: top, left.
    pub pad_before: (u32, u32),
    /// Padding after: bottom, right.
    pub pad_after: (u32, u32),
    /// Steps between taps.
    pub dilation: (u32, u32),
    /// Whether a mean counts positions in the padding.
    pub count_pad: bool,
}

impl Pool2d {
    /// Windows side by side, without padding.
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

/// What pooling takes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// The largest.
    Max,
    /// The mean.
    Mean,
}

/// What fusion may do with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Input, weight, state, constant.
    Leaf,
    /// One result for each element.
    Elementwise,
    /// Many to one along an axis.
    Reduction,
    /// Products and attention: kernels that others fuse into.
    Anchor,
    /// The same memory seen in another way.
    Alias,
    /// Gather, update, RoPE and the like.
    Special,
}

impl Op {
    /// The product with a weight, of `x` as it is.
    pub const fn linear() -> Op {
        Op::Linear { mode: ComputeMode::F32 }
    }

    /// Attention, of queries and weights as they are: the factor on scores, whether a token sees only what is before
    /// it, how many keys back it sees, and the keys before the first token.
    pub const fn attention(scale: f32, causal: bool, window: Option<u32>, past: Dim) -> Op {
        Op::Attention { scale, causal, window, past, mode: ComputeMode::F32 }
    }

    /// How exactly it computes, of what has a choice.
    pub const fn mode(&self) -> Option<ComputeMode> {
        match self {
            Op::Linear { mode } | Op::Attention { mode, .. } => Some(*mode),
            _ => None,
        }
    }

    /// What fusion may do with it.
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

    /// Whether it writes a state, its first operand, in place.
    pub fn overwrites(&self) -> bool {
        matches!(self, Op::Update { .. } | Op::Scatter)
    }

    /// How the bytes are stored, of a weight or several merged.
    pub fn stored(&self) -> Option<Format> {
        match self {
            Op::Weight { format, .. } | Op::Merged { format, .. } => Some(*format),
            _ => None,
        }
    }

    /// The names by which a leaf is bound: one, several of a merged weight, none of other nodes.
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
