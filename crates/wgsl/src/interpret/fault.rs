//! What ends a run early: faults of the program, with their locations, and errors of the call.

use std::fmt;

use naga::Span;

use warploom_core::error::Error;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// An index outside its array, vector or matrix.
    OutOfBounds,
    /// Two invocations access the same bytes without a barrier in between, and at least one writes.
    Race,
    /// A read of memory before any write.
    Uninitialised,
    /// Not all invocations of a workgroup reach a barrier, or not all invocations of a subgroup
    /// reach a subgroup operation.
    NonUniformBarrier,
    /// An invocation takes more steps than [`Options::max_steps`](super::Options::max_steps).
    StepLimit,
}

/// A location in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file name that the program was created with.
    pub file: String,
    /// Line, from 1; 0 if the source is unknown.
    pub line: u32,
    /// Column in bytes, from 1; 0 if the source is unknown.
    pub column: u32,
    /// The source line, trimmed.
    pub text: String,
}

/// An invocation of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// `workgroup_id`.
    pub workgroup: [u32; 3],
    /// `local_invocation_id`.
    pub local: [u32; 3],
    /// `global_invocation_id`.
    pub global: [u32; 3],
}

/// A fault of a program, with the invocation that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The location of the access or operation.
    pub location: Location,
    /// The invocation that caused it.
    pub invocation: Invocation,
    /// The other invocation of a race, and the location of its access.
    pub other: Option<(Invocation, Location)>,
    /// Name of the variable, if the fault is in memory.
    pub variable: Option<String>,
    /// Details, such as index and length, byte offset or values.
    pub detail: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invocation { workgroup, local, global } = self;
        write!(f, "invocation {global:?} (local {local:?} of workgroup {workgroup:?})")
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::OutOfBounds => "out of bounds",
            FaultKind::Race => "race",
            FaultKind::Uninitialised => "uninitialised read",
            FaultKind::NonUniformBarrier => "non-uniform barrier",
            FaultKind::StepLimit => "step limit",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, location, invocation, other, variable, detail } = self;
        write!(f, "{location}: {kind}")?;
        if let Some(variable) = variable {
            write!(f, " of {variable}")?;
        }
        write!(f, ": {detail}, by {invocation}\n  {}", location.text)?;
        if let Some((invocation, location)) = other {
            write!(f, "\nagainst {invocation} at {location}\n  {}", location.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Why a run ended early.
#[derive(Debug)]
pub enum Failure {
    /// The program has a fault.
    Fault(Box<Fault>),
    /// The run is not possible: a buffer is missing or too small, or an option is out of range.
    Error(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Fault(fault) => fault.fmt(f),
            Failure::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

impl Failure {
    /// Converts the failure to an [`Error`]: a fault becomes an invalid error with its text.
    pub fn into_error(self) -> Error {
        match self {
            Failure::Fault(fault) => Error::invalid(fault.to_string()),
            Failure::Error(error) => error,
        }
    }
}

/// A fault in the machine's terms: indices of instructions, workgroups and invocations.
#[derive(Debug)]
pub(super) struct Trap {
    pub(super) kind: FaultKind,
    /// Index of the instruction.
    pub(super) op: u32,
    /// Index of the invocation in its workgroup.
    pub(super) local: u32,
    pub(super) other: Option<Party>,
    pub(super) region: Option<u32>,
    pub(super) detail: String,
}

/// The indices of a workgroup, of an invocation in it, and of the instruction that it executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    pub(super) group: u32,
    pub(super) local: u32,
    pub(super) op: u32,
}

/// The text that spans refer to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) text: String,
}

impl Source {
    pub(super) fn locate(&self, span: Span) -> Location {
        let file = self.file.clone();
        let start = span.to_range().map(|range| range.start);
        let Some(before) = start.and_then(|start| self.text.get(..start)) else {
            return Location { file, line: 0, column: 0, text: String::new() };
        };
        let line = before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        let text = self.text.lines().nth(line).unwrap_or_default().trim().to_owned();
        Location { file, line: line as u32 + 1, column: column as u32, text }
    }
}
