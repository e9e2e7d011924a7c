//! Shadow memory: records accesses to detect races and uninitialised reads.

use super::bytecode::{Place, Region};
use super::fault::{FaultKind, Party, Trap};
use super::layout::Layout;

/// An access to a scalar.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// Index of the workgroup in the dispatch; `u32::MAX` for none.
    group: u32,
    local: u32,
    /// Number of barriers that the workgroup had passed.
    phase: u32,
    op: u32,
    atomic: bool,
}

const NOBODY: Touch = Touch { group: u32::MAX, local: 0, phase: 0, op: 0, atomic: false };

/// Earlier accesses to a scalar, with which later ones are compared.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The last write.
    write: Touch,
    /// A read by another workgroup than that of `reads`.
    earlier: Touch,
    /// The last reads, by two invocations of one workgroup in one phase.
    reads: [Touch; 2],
}

const FRESH: Cell = Cell { write: NOBODY, earlier: NOBODY, reads: [NOBODY; 2] };

/// Accesses to a region; not recorded for a read-only region that is fully initialised.
struct Tracked {
    cells: Vec<Cell>,
    /// Size of a cell in bytes.
    grain: u32,
    workgroup: bool,
    /// Whether reads before writes are faults.
    fresh: bool,
}

/// The current invocation, and the number of barriers of each kind that its workgroup has passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    pub(super) group: u32,
    pub(super) local: u32,
    pub(super) storage_phase: u32,
    pub(super) workgroup_phase: u32,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    /// Atomic read and write.
    Atomic,
}

pub(super) struct Shadow {
    regions: Vec<Tracked>,
    races: bool,
}

impl Shadow {
    /// Creates shadow memory for regions of these sizes in bytes; `fresh` marks uninitialised
    /// regions.
    pub(super) fn new(regions: &[Region], bytes: &[u64], fresh: &[bool], races: bool) -> Shadow {
        let tracked = regions.iter().zip(bytes).zip(fresh).map(|((region, bytes), fresh)| {
            let constant = matches!(region.place, Place::Bound { writable: false, .. });
            let needed = if constant { *fresh } else { *fresh || races };
            let cells = if needed { bytes.div_ceil(u64::from(region.grain)) } else { 0 };
            Tracked {
                cells: vec![FRESH; cells as usize],
                grain: region.grain,
                workgroup: region.place == Place::Workgroup,
                fresh: *fresh,
            }
        });
        Shadow { regions: tracked.collect(), races }
    }

    /// Records an access to a value at byte `at` of a region; fails if the access is a race or an
    /// uninitialised read.
    pub(super) fn touch(
        &mut self,
        region: u32,
        at: u32,
        layout: &Layout,
        how: How,
        now: Now,
        op: u32,
    ) -> Result<(), Box<Trap>> {
        let races = self.races;
        let Some(tracked) = self.regions.get_mut(region as usize) else { return Ok(()) };
        let phase = if tracked.workgroup { now.workgroup_phase } else { now.storage_phase };
        let atomic = layout.atomic || how == How::Atomic;
        let me = Touch { group: now.group, local: now.local, phase, op, atomic };
        let (workgroup, fresh, grain) = (tracked.workgroup, tracked.fresh, tracked.grain);
        for (offset, cell) in &layout.cells {
            let first = (at + offset) / grain;
            for index in first..first + cell.bytes() / grain {
                let Some(cell) = tracked.cells.get_mut(index as usize) else { continue };
                let found = cell.touch(me, how, workgroup, fresh, races);
                if let Some((kind, other, detail)) = found {
                    return Err(Box::new(Trap {
                        kind,
                        op,
                        local: now.local,
                        other,
                        region: Some(region),
                        detail: format!("{detail} byte {}", index * grain),
                    }));
                }
            }
        }
        Ok(())
    }
}

type Found = Option<(FaultKind, Option<Party>, &'static str)>;

impl Cell {
    fn touch(&mut self, me: Touch, how: How, workgroup: bool, fresh: bool, races: bool) -> Found {
        // Workgroup memory is new for each workgroup.
        if workgroup && [self.write, self.reads[0]].iter().all(|touch| touch.group != me.group) {
            *self = FRESH;
        }
        if fresh && how != How::Write && self.write.group == NOBODY.group {
            return Some((FaultKind::Uninitialised, None, "no invocation has written it"));
        }
        let meets = |touch: &Touch| {
            let apart =
                touch.group == me.group && (touch.phase != me.phase || touch.local == me.local);
            touch.group != NOBODY.group && !apart && !(touch.atomic && me.atomic)
        };
        let party =
            |touch: &Touch| Some(Party { group: touch.group, local: touch.local, op: touch.op });
        if races && meets(&self.write) {
            let what = if how == How::Read { "reads what was written:" } else { WRITES };
            return Some((FaultKind::Race, party(&self.write), what));
        }
        if how == How::Read {
            self.note_read(me);
            return None;
        }
        let readers = [self.earlier, self.reads[0], self.reads[1]];
        if let Some(reader) = readers.iter().find(|touch| races && meets(touch)) {
            return Some((FaultKind::Race, party(reader), "writes what was read:"));
        }
        self.write = me;
        None
    }

    fn note_read(&mut self, me: Touch) {
        let [first, second] = &mut self.reads;
        if first.group != me.group && first.group != NOBODY.group {
            // A plain read is kept in preference to an atomic one: it also conflicts with atomic
            // writes.
            if self.earlier.group == NOBODY.group || self.earlier.atomic {
                self.earlier = *first;
            }
            *second = NOBODY;
            *first = me;
        } else if first.group == NOBODY.group || first.phase != me.phase {
            *second = NOBODY;
            *first = me;
        } else if first.local == me.local {
            first.atomic &= me.atomic;
        } else if second.group == NOBODY.group || second.atomic {
            *second = me;
        }
    }
}

/// Start of the detail of a write-write race.
pub(super) const WRITES: &str = "writes what was written:";
