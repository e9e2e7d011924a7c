//! The compact form that runs: one list of instructions over registers of 32 bits.
//!
//! WGSL has no recursion, so every function has registers of its own at fixed places, and an
//! invocation is its registers and the number of its next instruction. A value is its scalars one
//! after another, one to a register; halves are floats that a half can hold. Local and private
//! variables are registers as well, and a pointer as an argument, which naga allows to these only, is
//! the number of the first one.

use naga::{AtomicFunction, Span};

use super::cooperative::Coop;
use super::layout::Layout;
use super::math::Function;
use super::number::{Binary, Unary};

/// A register of an invocation.
pub(super) type Slot = u32;

/// No register.
pub(super) const NONE: Slot = u32::MAX;

/// Which memory is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Index in [`Code::regions`].
    Region(u32),
    /// Registers of the invocation.
    Own,
}

/// One instruction. `n` counts registers; `steps` has bit `i` set where operand `i` has components
/// of its own, and is not the same for all.
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
    /// To the beginning of a loop; takes as many steps as the loop has instructions.
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
    /// Rounds floats to halves.
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
    /// A built-in function of whole vectors, words or matrices of n components, or of two results.
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
    /// Element `index` of a value of `count` elements of n registers.
    Pick {
        to: Slot,
        from: Slot,
        index: Slot,
        count: u32,
        n: u32,
        signed: bool,
    },
    /// `to = base + index * stride`, the index kept inside; a count of 0 is the length of the
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
    /// Elements of a region's runtime-sized array.
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
    /// A cooperative matrix from memory or to it.
    Coop {
        table: u32,
    },
}

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atomic {
    pub(super) fun: AtomicFunction,
    /// The value that is expected, of a compare and exchange.
    pub(super) compare: Slot,
    pub(super) kind: naga::ScalarKind,
}

/// An operation of a subgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) what: Grouped,
    pub(super) to: Slot,
    /// The argument; none of a ballot of all.
    pub(super) from: Slot,
    pub(super) n: u32,
    pub(super) half: bool,
}

/// What subgroups do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grouped {
    Barrier,
    Ballot,
    /// Sums and the like: the operation, whether the invocation's own value counts and whether
    /// those of higher lanes do.
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
    /// A product of cooperative matrices, that many rows and columns each: what it is multiplied by, what
    /// is added.
    Multiply {
        b: Slot,
        c: Slot,
        side: u32,
    },
}

/// How values of a subgroup come together, and what none of them make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    pub(super) op: Binary,
    pub(super) identity: u32,
}

/// A switch: values with their places, and the place for all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) cases: Vec<(u32, u32)>,
    pub(super) default: u32,
}

/// What an invocation's built-in value is.
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

/// Where a region of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A buffer, with whether it is a uniform block and whether it is written.
    Bound {
        group: u32,
        binding: u32,
        uniform: bool,
        writable: bool,
    },
    Workgroup,
}

/// Memory of a variable: a buffer or workgroup memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) place: Place,
    /// Bytes, with one element of a runtime-sized array.
    pub(super) bytes: u32,
    /// Offset and stride of its runtime-sized array, in bytes.
    pub(super) runtime: Option<(u32, u32)>,
    /// Bytes of its smallest scalar.
    pub(super) grain: u32,
}

/// A program as instructions.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) ops: Vec<Op>,
    /// Where each instruction comes from.
    pub(super) spans: Vec<Span>,
    /// What the registers of an invocation hold when it begins.
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
