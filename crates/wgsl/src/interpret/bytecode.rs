//! The bytecode: one list of instructions over 32-bit registers.
//!
//! WGSL has no recursion, so every function has its own registers at fixed indices, and the state
//! of an invocation is its registers and its instruction index. A value is its scalars in order,
//! one per register; an f16 is an f32 that f16 can represent. Local and private variables are
//! registers too. A pointer argument, which may refer only to these, is the index of the first
//! register.

use naga::{AtomicFunction, Span};

use super::cooperative::Coop;
use super::layout::Layout;
use super::math::Function;
use super::number::{Binary, Unary};

/// Index of a register of an invocation.
pub(super) type Slot = u32;

/// No register.
pub(super) const NONE: Slot = u32::MAX;

/// The memory that an address refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Index in [`Code::regions`].
    Region(u32),
    /// Registers of the invocation.
    Own,
}

/// One instruction. `n` is a number of registers; bit `i` of `steps` is set if operand `i` has its
/// own components, clear if it is one scalar for all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Copy {
        to: Slot,
        from: Slot,
        n: u32,
    },
    Zero {
        to: Slot,
        n: u32,
    },
    Jump {
        to: u32,
    },
    /// Jumps to the start of a loop; counts one step for each instruction of the loop.
    Back {
        to: u32,
    },
    Unless {
        condition: Slot,
        to: u32,
    },
    Switch {
        selector: Slot,
        table: u32,
    },
    Call {
        to: u32,
        back: Slot,
    },
    Return {
        back: Slot,
    },
    End,
    Unary {
        op: Unary,
        to: Slot,
        a: Slot,
        n: u8,
    },
    Binary {
        op: Binary,
        to: Slot,
        a: Slot,
        b: Slot,
        n: u8,
        steps: u8,
    },
    /// Rounds floats to f16.
    Halves {
        at: Slot,
        n: u32,
    },
    Select {
        to: Slot,
        condition: Slot,
        accept: Slot,
        reject: Slot,
        n: u32,
        by_component: bool,
    },
    Swizzle {
        to: Slot,
        from: Slot,
        pattern: [u8; 4],
        n: u8,
    },
    /// `all` or `any` of n bools.
    Join {
        to: Slot,
        from: Slot,
        n: u8,
        all: bool,
    },
    Math {
        fun: Function,
        to: Slot,
        args: u32,
        n: u8,
        steps: u8,
    },
    /// A built-in function that does not work by component, or that has two results. Its vectors
    /// and matrices have n components.
    Whole {
        fun: Function,
        to: Slot,
        args: u32,
        n: u8,
    },
    Matrix {
        to: Slot,
        a: Slot,
        b: Slot,
        rows: u8,
        shared: u8,
        columns: u8,
    },
    Transpose {
        to: Slot,
        a: Slot,
        rows: u8,
        columns: u8,
    },
    /// Element `index` of a value of `count` elements of n registers each.
    Pick {
        to: Slot,
        from: Slot,
        index: Slot,
        count: u32,
        n: u32,
        signed: bool,
    },
    /// `to = base + index * stride`, with the index clamped; a count of 0 means the length of the
    /// region's runtime-sized array.
    Index {
        to: Slot,
        base: Slot,
        index: Slot,
        stride: u32,
        count: u32,
        root: Root,
        signed: bool,
    },
    LoadOwn {
        to: Slot,
        at: Slot,
        n: u32,
    },
    StoreOwn {
        at: Slot,
        from: Slot,
        n: u32,
    },
    Load {
        to: Slot,
        region: u32,
        at: Slot,
        layout: u32,
    },
    Store {
        region: u32,
        at: Slot,
        from: Slot,
        layout: u32,
    },
    Atomic {
        to: Slot,
        region: u32,
        at: Slot,
        value: Slot,
        fun: u32,
    },
    /// Length of a region's runtime-sized array.
    Length {
        to: Slot,
        region: u32,
    },
    Barrier {
        storage: bool,
        workgroup: bool,
    },
    Subgroup {
        table: u32,
    },
    /// Loads or stores a cooperative matrix.
    Coop {
        table: u32,
    },
}

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atomic {
    pub(super) fun: AtomicFunction,
    /// The expected value of a compare-exchange.
    pub(super) compare: Slot,
    pub(super) kind: naga::ScalarKind,
}

/// A subgroup operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) what: Grouped,
    pub(super) to: Slot,
    /// The argument; `NONE` for a ballot without a predicate.
    pub(super) from: Slot,
    pub(super) n: u32,
    pub(super) half: bool,
}

/// The kind of a subgroup operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grouped {
    Barrier,
    Ballot,
    /// A reduction or scan: the operation, and whether it includes the invocation's own value and
    /// the values of higher lanes.
    Fold {
        op: Fold,
        own: bool,
        higher: bool,
    },
    First,
    Broadcast(Slot),
    Shuffle(Slot),
    Down(Slot),
    Up(Slot),
    Xor(Slot),
    QuadBroadcast(Slot),
    QuadSwap(u32),
    /// A product of cooperative matrices with `side` rows and columns: the second factor `b` and
    /// the addend `c`.
    Multiply {
        b: Slot,
        c: Slot,
        side: u32,
    },
}

/// A reduction operation and its identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    pub(super) op: Binary,
    pub(super) identity: u32,
}

/// A switch: values with their jump targets, and the default target.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) cases: Vec<(u32, u32)>,
    pub(super) default: u32,
}

/// A built-in input of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltIn {
    GlobalId,
    LocalId,
    LocalIndex,
    WorkgroupId,
    Workgroups,
    WorkgroupSize,
    Subgroups,
    SubgroupId,
    SubgroupSize,
    SubgroupInvocation,
}

/// The kind of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A buffer: whether it is a uniform block, and whether the shader may write it.
    Bound {
        group: u32,
        binding: u32,
        uniform: bool,
        writable: bool,
    },
    Workgroup,
}

/// The memory of a variable: a buffer or workgroup memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) place: Place,
    /// Size in bytes, with one element of a runtime-sized array.
    pub(super) bytes: u32,
    /// Offset and stride of its runtime-sized array, in bytes.
    pub(super) runtime: Option<(u32, u32)>,
    /// Size of its smallest scalar in bytes.
    pub(super) grain: u32,
}

/// A compiled program.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) ops: Vec<Op>,
    /// Source span of each instruction.
    pub(super) spans: Vec<Span>,
    /// Initial register values of an invocation.
    pub(super) registers: Vec<u32>,
    pub(super) builtins: Vec<(BuiltIn, Slot)>,
    pub(super) regions: Vec<Region>,
    pub(super) layouts: Vec<Layout>,
    pub(super) tables: Vec<Table>,
    pub(super) math: Vec<[Slot; 4]>,
    pub(super) atomics: Vec<Atomic>,
    pub(super) groups: Vec<Group>,
    pub(super) coops: Vec<Coop>,
    pub(super) workgroup_size: [u32; 3],
}
