//! The syntax tree of a template.

use std::sync::Arc;

/// A parsed template.
#[derive(Debug)]
pub(in crate::chat) struct Ast {
    pub(super) body: Vec<Node>,
}

/// A statement and the line where it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) stmt: Stmt,
}

#[derive(Debug)]
pub(super) enum Stmt {
    Text(Arc<str>),
    Emit(Vec<Expr>),
    For(Arc<For>),
    /// Conditions with their bodies, in order, and the body of `else`.
    If(Vec<(Expr, Vec<Node>)>, Vec<Node>),
    Set(Target, Expr),
    /// The expression, if any, applies filters to [`Expr::Block`].
    SetBlock(Target, Option<Expr>, Vec<Node>),
    FilterBlock(Expr, Vec<Node>),
    With(Vec<(Target, Expr)>, Vec<Node>),
    Macro(Arc<Macro>),
    CallBlock(Expr, Arc<Macro>),
    /// The body of `{% generation %}`, which has a scope of its own.
    Scope(Vec<Node>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(in crate::chat) struct For {
    pub(super) target: Target,
    pub(super) iter: Expr,
    pub(super) test: Option<Expr>,
    pub(super) recursive: bool,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    /// An attribute of a namespace: the name of the namespace, then that of the attribute.
    Attr(Arc<str>, Arc<str>),
    Several(Vec<Target>),
}

/// A macro, or the body of a `call` block.
#[derive(Debug)]
pub(in crate::chat) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) params: Vec<(Arc<str>, Option<Expr>)>,
    pub(super) body: Vec<Node>,
    /// Whether the body reads `caller`. Like the next two fields, it decides which arguments are
    /// accepted.
    pub(super) uses_caller: bool,
    pub(super) uses_varargs: bool,
    pub(super) uses_kwargs: bool,
}

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Arc<str>, Expr)>,
    /// `*args`.
    pub(super) star: Option<Box<Expr>>,
    /// `**kwargs`.
    pub(super) stars: Option<Box<Expr>>,
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    Name(Arc<str>),
    /// The output of the block that a filter applies to.
    Block,
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Pos(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    /// Condition, value if true, value if false.
    Cond(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Filter(Box<Expr>, Arc<str>, Box<Args>),
    Test(Box<Expr>, Arc<str>, Box<Args>),
    Attr(Box<Expr>, Arc<str>),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<Args>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl Binary {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::FloorDiv => "//",
            Binary::Mod => "%",
            Binary::Pow => "**",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
