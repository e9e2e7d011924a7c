//! The scalar operations of elementwise ops and fused kernels.

use serde::{Deserialize, Serialize};

/// A unary operation, on floats unless noted; the result is rounded to the operand's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-x`, also for `i32`.
    Neg,
    /// `|x|`, also for `i32`.
    Abs,
    /// `e^x`.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// `1 / x`.
    Reciprocal,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// Gauss error function.
    Erf,
    /// Largest integer not above `x`.
    Floor,
    /// Smallest integer not below `x`.
    Ceil,
    /// Nearest integer, ties to even.
    Round,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `max(x, 0)`; NaN for NaN.
    Relu,
    /// Logical negation of a `bool`.
    Not,
}

impl UnaryOp {
    /// Every operation, for tables and tests.
    pub const ALL: [UnaryOp; 20] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Reciprocal,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Tanh,
        UnaryOp::Erf,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Sigmoid,
        UnaryOp::Silu,
        UnaryOp::Gelu,
        UnaryOp::GeluTanh,
        UnaryOp::Relu,
        UnaryOp::Not,
    ];

    /// Returns the lowercase name, such as `gelu_tanh`.
    pub const fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Reciprocal => "reciprocal",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Round => "round",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::Silu => "silu",
            UnaryOp::Gelu => "gelu",
            UnaryOp::GeluTanh => "gelu_tanh",
            UnaryOp::Relu => "relu",
            UnaryOp::Not => "not",
        }
    }
}

/// A binary operation on operands of the same type. Comparisons return `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Quotient. Integer division truncates; division by an integer zero returns the dividend, as
    /// in WGSL.
    Div,
    /// Remainder with the sign of the dividend; 0 if an integer divisor is zero, as in WGSL.
    Rem,
    /// `a^b`, for floats only.
    Pow,
    /// Minimum; NaN if either float is NaN.
    Min,
    /// Maximum; NaN if either float is NaN.
    Max,
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
    /// Logical AND of `bool` operands.
    And,
    /// Logical OR of `bool` operands.
    Or,
}

impl BinaryOp {
    /// Every operation, for tables and tests.
    pub const ALL: [BinaryOp; 16] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::Pow,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::Gt,
        BinaryOp::Ge,
        BinaryOp::And,
        BinaryOp::Or,
    ];

    /// Returns whether this is a comparison. The result of a comparison is `bool` for operands of
    /// any type.
    pub const fn is_comparison(self) -> bool {
        use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }

    /// Returns whether the operands must be `bool`.
    pub const fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }

    /// Returns the lowercase name, such as `add`.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
            BinaryOp::Rem => "rem",
            BinaryOp::Pow => "pow",
            BinaryOp::Min => "min",
            BinaryOp::Max => "max",
            BinaryOp::Eq => "eq",
            BinaryOp::Ne => "ne",
            BinaryOp::Lt => "lt",
            BinaryOp::Le => "le",
            BinaryOp::Gt => "gt",
            BinaryOp::Ge => "ge",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
        }
    }
}
